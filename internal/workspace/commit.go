package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// CommitRequest is what a run brings back.
type CommitRequest struct {
	Mission string
	Launch  int
	Phase   string
	Run     string // unique to the run: results are committed once for it
	Parent  string // the commit the run started from
	TreeIn  string // the tree that was injected

	Tar     io.Reader // changed files
	SHA256  string    // of Tar, hex; empty: not checked
	Deleted []string  // slash-separated paths; what is not there is not missed

	Partial string // why the run was ended early; empty: it was not
	Subject string // the commit's first line
	Author  Person
	When    time.Time // of author and committer, so that a repeated commit has the same id
}

// CommitResult is the commit of a run.
type CommitResult struct {
	Commit  string
	Tree    string
	Changed bool // the tree differs from the parent's
	Stat    Stat
}

// Stat counts what a commit changed. Binary files have no lines.
type Stat struct {
	Files      int
	Insertions int
	Deletions  int
}

// Commit checks the results of a run, commits them onto Parent and moves the
// launch's branch, if the branch is still at Parent. A run that changed nothing
// leaves an empty commit. A run that was committed before gets that commit, and
// its results are not read. When the branch has moved on without this run the
// error is a [*Superseded]; on every error the branch is as it was.
func (g *Gateway) Commit(ctx context.Context, r CommitRequest) (CommitResult, error) {
	if err := r.check(g.limits); err != nil {
		return CommitResult{}, err
	}
	repo, checkout, err := g.openCheckout(ctx, r.Mission, r.Launch)
	if err != nil {
		return CommitResult{}, err
	}
	if checkout.Head != r.Parent {
		return committed(ctx, repo, checkout, r)
	}
	commit, err := g.importResults(ctx, repo, r)
	if err != nil {
		return CommitResult{}, err
	}
	result, err := describe(ctx, repo, commit)
	if err != nil {
		return CommitResult{}, err
	}
	if err := g.moveBranch(ctx, repo, r, commit); err != nil {
		now, readErr := readCheckout(ctx, repo, r.Mission, r.Launch)
		if readErr == nil && now.Head != r.Parent {
			return committed(ctx, repo, now, r)
		}
		return CommitResult{}, fmt.Errorf("moving branch %s: %w", checkout.Branch, err)
	}
	return result, nil
}

// trailerValue is what may stand in a trailer: one word.
var trailerValue = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._:/]{0,254}$`)

func (r CommitRequest) check(limits Limits) error {
	for name, value := range map[string]string{"phase": r.Phase, "run": r.Run, "tree": r.TreeIn} {
		if !trailerValue.MatchString(value) {
			return fmt.Errorf("commit of mission %s: %q cannot be the %s of a commit", r.Mission, value, name)
		}
	}
	if !isCommit(r.Parent) {
		return refuse(BadRef, "%q is not a full commit id", r.Parent)
	}
	return deletions(r.Deleted, limits)
}

func (r CommitRequest) message() string {
	text := fmt.Sprintf("%s\n\nMission: %s\nPhase: %s\nRun: %s\nTree-In: %s\n", plain(r.Subject), r.Mission, r.Phase, r.Run, r.TreeIn)
	if r.Partial != "" {
		text += "Partial: " + plain(r.Partial) + "\n"
	}
	return text
}

// committed returns the commit this run made earlier, or says who was faster.
func committed(ctx context.Context, repo git, checkout Checkout, r CommitRequest) (CommitResult, error) {
	infos, err := log(ctx, repo, checkout)
	if err != nil {
		return CommitResult{}, err
	}
	for _, info := range infos {
		if info.Run == r.Run {
			return describe(ctx, repo, info.Commit)
		}
	}
	return CommitResult{}, &Superseded{Branch: checkout.Branch, Run: r.Run, Expected: r.Parent, Actual: checkout.Head}
}

// importResults makes the commit. No branch knows it yet.
func (g *Gateway) importResults(ctx context.Context, repo git, r CommitRequest) (string, error) {
	s, err := newScratch(g.scratches())
	if err != nil {
		return "", err
	}
	defer s.remove()
	spool, err := s.create("spool")
	if err != nil {
		return "", fmt.Errorf("spool of run %s: %w", r.Run, err)
	}
	defer spool.Close()
	files, err := receive(r.Tar, spool, g.limits, r.SHA256)
	if err != nil {
		return "", resultsError(r, err)
	}
	commit, err := repo.importCommit(ctx, s.ref(), func(i *importer) error {
		i.commit(s.ref(), r.Author, r.When, r.message(), r.Parent)
		for _, path := range r.Deleted {
			i.delete(path)
		}
		for _, f := range files {
			i.file(f.path, f.mode, io.NewSectionReader(spool, f.offset, f.size), f.size)
		}
		return nil
	})
	if err != nil {
		return "", resultsError(r, err)
	}
	return commit, nil
}

func resultsError(r CommitRequest, err error) error {
	var refused *Refused
	if errors.As(err, &refused) {
		return refused
	}
	return fmt.Errorf("results of run %s: %w", r.Run, err)
}

// moveBranch sets the branch from the parent to the commit, or fails.
func (g *Gateway) moveBranch(ctx context.Context, repo git, r CommitRequest, commit string) error {
	move := func() error {
		_, err := repo.output(ctx, "update-ref", branchRef(r.Mission, r.Launch), commit, r.Parent)
		return err
	}
	err := move()
	var failure *gitError
	if errors.As(err, &failure) && failure.says(".lock': File exists") {
		if sweepErr := g.sweepRepository(g.directory(r.Mission)); sweepErr == nil {
			return move()
		}
	}
	return err
}

// describe reads a commit's tree and counts its changes.
func describe(ctx context.Context, repo git, commit string) (CommitResult, error) {
	out, err := repo.slowly().output(ctx, "diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv",
		"--numstat", "--always", "--format=%T", commit, "--")
	if err != nil {
		return CommitResult{}, fmt.Errorf("commit %.12s: %w", commit, err)
	}
	tree, changes, _ := strings.Cut(out, "\n")
	stat := parseNumstat(changes)
	return CommitResult{Commit: commit, Tree: tree, Changed: stat.Files > 0, Stat: stat}, nil
}

// parseNumstat adds up what git says of each file.
func parseNumstat(text string) Stat {
	var stat Stat
	for line := range strings.Lines(text) {
		fields := strings.SplitN(line, "\t", 3)
		if len(fields) != 3 {
			continue
		}
		stat.Files++
		stat.Insertions += lines(fields[0])
		stat.Deletions += lines(fields[1])
	}
	return stat
}

// lines reads a number of lines, which is a dash for a binary file.
func lines(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
