package workspace

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CommitInfo is one commit of a launch's branch.
type CommitInfo struct {
	Commit  string
	Phase   string
	Run     string
	Subject string
	When    time.Time
	Stat
}

// Log returns the commits of a launch, oldest first, without the one it started
// from.
func (g *Gateway) Log(ctx context.Context, name string, launch int) ([]CommitInfo, error) {
	repo, checkout, err := g.openCheckout(ctx, name, launch)
	if err != nil {
		return nil, err
	}
	return log(ctx, repo, checkout)
}

func log(ctx context.Context, repo git, checkout Checkout) ([]CommitInfo, error) {
	const trailer = "%%x00%%(trailers:key=%s,valueonly,separator=%%x20)"
	format := "--format=%x01%H%x00%ct%x00%s" + fmt.Sprintf(trailer+trailer, "Phase", "Run") + "%x00"
	out, err := repo.slowly().output(ctx, "log", "--reverse", "--first-parent", "--no-renames", "--no-ext-diff",
		"--no-textconv", "--numstat", format, checkout.Base+".."+checkout.Head, "--")
	if err != nil {
		return nil, fmt.Errorf("log of branch %s: %w", checkout.Branch, err)
	}
	var infos []CommitInfo
	for record := range strings.SplitSeq(out, "\x01") {
		fields := strings.SplitN(record, "\x00", 6)
		if len(fields) != 6 {
			continue
		}
		seconds, _ := strconv.ParseInt(fields[1], 10, 64)
		info := CommitInfo{Commit: fields[0], When: time.Unix(seconds, 0).UTC(), Subject: fields[2], Phase: fields[3], Run: fields[4]}
		info.Stat = parseNumstat(fields[5])
		infos = append(infos, info)
	}
	return infos, nil
}

// Diff returns what a phase changed as a unified diff, and whether it was cut at
// maxBytes. A phase that ran more than once is shown as it ran last.
func (g *Gateway) Diff(ctx context.Context, name string, launch int, phase string, maxBytes int) (text string, cut bool, err error) {
	repo, commit, err := g.ofPhase(ctx, name, launch, phase)
	if err != nil {
		return "", false, err
	}
	return diff(ctx, repo, commit, maxBytes)
}

// PhaseCommit returns the commit of a phase; of one that ran more than once, the
// last. An empty phase is where the launch's branch is.
func (g *Gateway) PhaseCommit(ctx context.Context, name string, launch int, phase string) (string, error) {
	if phase == "" {
		_, checkout, err := g.openCheckout(ctx, name, launch)
		return checkout.Head, err
	}
	_, commit, err := g.ofPhase(ctx, name, launch, phase)
	return commit, err
}

func (g *Gateway) ofPhase(ctx context.Context, name string, launch int, phase string) (git, string, error) {
	repo, checkout, err := g.openCheckout(ctx, name, launch)
	if err != nil {
		return git{}, "", err
	}
	infos, err := log(ctx, repo, checkout)
	if err != nil {
		return git{}, "", err
	}
	for _, info := range slices.Backward(infos) {
		if info.Phase == phase {
			return repo, info.Commit, nil
		}
	}
	return git{}, "", refuse(Missing, "launch %d of mission %s has no commit of a phase %s", launch, name, phase)
}

// FileStat is what a commit did to one file. A binary file has no lines.
type FileStat struct {
	Path       string
	Binary     bool
	Insertions int
	Deletions  int
}

// Stats returns what a phase did to each file, and whether the list was cut after
// most files.
func (g *Gateway) Stats(ctx context.Context, name string, launch int, phase string, most int) (files []FileStat, cut bool, err error) {
	repo, commit, err := g.ofPhase(ctx, name, launch, phase)
	if err != nil {
		return nil, false, err
	}
	out, err := repo.slowly().output(ctx, "diff-tree", "-r", "-z", "--no-commit-id", "--no-renames", "--no-ext-diff", "--no-textconv", "--numstat", commit, "--")
	if err != nil {
		return nil, false, fmt.Errorf("changes of commit %.12s: %w", commit, err)
	}
	for record := range strings.SplitSeq(out, "\x00") {
		fields := strings.SplitN(record, "\t", 3)
		if len(fields) != 3 {
			continue
		}
		if len(files) == most {
			return files, true, nil
		}
		files = append(files, FileStat{
			Path: strings.ToValidUTF8(fields[2], "\ufffd"), Binary: fields[0] == "-", Insertions: lines(fields[0]), Deletions: lines(fields[1]),
		})
	}
	return files, false, nil
}

func diff(ctx context.Context, repo git, commit string, maxBytes int) (string, bool, error) {
	first := &head{left: maxBytes}
	err := repo.slowly().run(ctx, nil, first, "diff-tree", "-p", "-r", "--no-commit-id", "--no-ext-diff", "--no-textconv",
		"--find-renames", commit, "--")
	if err != nil && !first.cut {
		return "", false, fmt.Errorf("diff of commit %.12s: %w", commit, err)
	}
	text := first.kept.String()
	if first.cut {
		text = text[:strings.LastIndexByte(text, '\n')+1]
	}
	return strings.ToValidUTF8(text, "\ufffd"), first.cut, nil
}

// head keeps the first part of what is written to it and refuses the rest, which
// ends the command that writes.
type head struct {
	kept strings.Builder
	left int
	cut  bool
}

func (h *head) Write(p []byte) (int, error) {
	n := min(len(p), h.left)
	h.kept.Write(p[:n])
	h.left -= n
	if n < len(p) {
		h.cut = true
		return n, io.ErrShortWrite
	}
	return n, nil
}

// BundleBranch writes a git bundle of a launch's branch to w, for [FetchInto].
// With haveBase it holds the commits of the mission only, for a repository that
// has the commit the launch started from; otherwise it holds the whole history.
func (g *Gateway) BundleBranch(ctx context.Context, name string, launch int, haveBase bool, w io.Writer) (Bundle, error) {
	repo, checkout, err := g.openCheckout(ctx, name, launch)
	if err != nil {
		return Bundle{}, err
	}
	revisions := []string{branchRef(name, launch)}
	if haveBase {
		if checkout.Head == checkout.Base {
			return Bundle{}, refuse(Missing, "launch %d of mission %s has no results yet", launch, name)
		}
		revisions = append(revisions, "^"+checkout.Base)
	}
	return writeBundle(ctx, repo, checkout.Head, checkout.Branch, w, revisions...)
}
