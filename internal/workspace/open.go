package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"tidewait/internal/mission"
)

// OpenRequest names a launch and where its files come from: a bundle or a URL.
type OpenRequest struct {
	Mission string
	Launch  int // from 1

	Bundle io.Reader // made by [BundleRepo] or [BundleDir]; nil: a URL
	SHA256 string    // of the bundle, hex
	Head   string    // the commit the bundle is of

	URL string // or an ssh address; a path must lie under a root
	Ref string // a branch, a tag or a full commit id; empty: HEAD

	Commit string // that an earlier launch of the mission made, instead of a source
}

// Checkout is where a launch starts and stands.
type Checkout struct {
	Base   string // the commit it started from
	Branch string // without refs/heads/
	Head   string // the commit the branch is at
}

// Open makes the branch of a launch at the source's commit. A launch that is
// already open is returned as it is, whatever the source says now.
func (g *Gateway) Open(ctx context.Context, r OpenRequest) (Checkout, error) {
	if r.Launch < 1 {
		return Checkout{}, refuse(Missing, "%d is not a launch's number", r.Launch)
	}
	if err := g.lay(); err != nil {
		return Checkout{}, err
	}
	s, err := newScratch(g.scratches())
	if err != nil {
		return Checkout{}, err
	}
	defer s.remove()
	repo, err := g.created(ctx, r.Mission, s)
	if err != nil {
		return Checkout{}, err
	}
	checkout, err := readCheckout(ctx, repo, r.Mission, r.Launch)
	if err != nil || checkout.Head != "" {
		return checkout, err
	}
	base, passing := checkout.Base, ""
	if base == "" {
		passing = s.ref()
		if base, err = g.bring(ctx, repo, r, s); err != nil {
			s.forget(ctx, repo)
			return Checkout{}, err
		}
	}
	if err := createBranch(ctx, repo, r.Mission, r.Launch, base, passing); err != nil {
		s.forget(ctx, repo)
		// Another Open of the launch may have been faster.
		if now, readErr := readCheckout(ctx, repo, r.Mission, r.Launch); readErr == nil && now.Head != "" {
			return now, nil
		}
		return Checkout{}, fmt.Errorf("checkout of mission %s: %w", r.Mission, err)
	}
	g.tidy(ctx, r.Mission, repo)
	return Checkout{Base: base, Branch: Branch(r.Mission, r.Launch), Head: base}, nil
}

// readCheckout returns what there is of a launch; a missing part is empty.
func readCheckout(ctx context.Context, repo git, name string, launch int) (Checkout, error) {
	base, branch := baseRef(launch), branchRef(name, launch)
	out, err := repo.output(ctx, "for-each-ref", "--format=%(refname) %(objectname)", base, branch)
	if err != nil {
		return Checkout{}, fmt.Errorf("checkout of mission %s: %w", name, err)
	}
	checkout := Checkout{Branch: Branch(name, launch)}
	for line := range strings.Lines(out) {
		switch ref, commit, _ := strings.Cut(strings.TrimSpace(line), " "); ref {
		case base:
			checkout.Base = commit
		case branch:
			checkout.Head = commit
		}
	}
	return checkout, nil
}

// openCheckout is the checkout of a launch that has to be there.
func (g *Gateway) openCheckout(ctx context.Context, name string, launch int) (git, Checkout, error) {
	repo, err := g.existing(name)
	if err != nil {
		return git{}, Checkout{}, err
	}
	checkout, err := readCheckout(ctx, repo, name, launch)
	if err == nil && (checkout.Head == "" || checkout.Base == "") {
		err = refuse(Missing, "this gateway has no checkout of launch %d of mission %s", launch, name)
	}
	return repo, checkout, err
}

// createBranch writes the base before the branch, so that a launch with a branch
// has a base even after a crash between the two. A base that was just fetched
// stands under a passing ref, which goes.
func createBranch(ctx context.Context, repo git, name string, launch int, base, passing string) error {
	var steps strings.Builder
	steps.WriteString("start\n")
	if passing != "" {
		fmt.Fprintf(&steps, "create %s %s\ndelete %s\n", baseRef(launch), base, passing)
	}
	fmt.Fprintf(&steps, "create %s %s\n", branchRef(name, launch), base)
	steps.WriteString("commit\n")
	return repo.run(ctx, strings.NewReader(steps.String()), nil, "update-ref", "--stdin")
}

// bring fetches the source and returns its commit.
func (g *Gateway) bring(ctx context.Context, repo git, r OpenRequest, s *scratch) (string, error) {
	switch {
	case r.Commit != "":
		return g.bringCommit(ctx, repo, r, s)
	case r.Bundle != nil:
		return g.bringBundle(ctx, repo, r, s)
	}
	return g.bringURL(ctx, repo, r, s)
}

// bringCommit takes a commit that is here already.
func (g *Gateway) bringCommit(ctx context.Context, repo git, r OpenRequest, s *scratch) (string, error) {
	if !isCommit(r.Commit) {
		return "", refuse(BadRef, "%q is not a full commit id", r.Commit)
	}
	var failure *gitError
	_, err := repo.output(ctx, "cat-file", "-e", r.Commit+"^{commit}")
	if errors.As(err, &failure) {
		return "", refuse(Missing, "this gateway does not have commit %.12s of mission %s any more; launch the mission again", r.Commit, r.Mission)
	}
	if err == nil {
		_, err = repo.output(ctx, "update-ref", s.ref(), r.Commit)
	}
	return r.Commit, err
}

func (g *Gateway) bringBundle(ctx context.Context, repo git, r OpenRequest, s *scratch) (string, error) {
	file, err := s.create("bundle")
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(file, sum), r.Bundle); err != nil {
		return "", fmt.Errorf("receiving the bundle of mission %s: %w", r.Mission, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != r.SHA256 {
		return "", refuse(Damaged, "the bundle has the SHA-256 %s, not %s as was announced; launch again", got, r.SHA256)
	}
	if is, err := isBundle(file.Name()); err != nil {
		return "", err
	} else if !is {
		return "", refuse(Damaged, "what was received is not a git bundle")
	}
	err = fetch(ctx, repo.allowing("file"), file.Name(), bundleRef, s.ref())
	var failure *gitError
	if errors.As(err, &failure) {
		return "", refuse(Damaged, "the bundle cannot be read: %s", failure.sentence())
	}
	if err != nil {
		return "", err
	}
	commit, err := fetched(ctx, repo, s.ref())
	if err == nil && r.Head != "" && commit != r.Head {
		return "", refuse(Damaged, "the bundle holds commit %.12s, not %.12s as was announced; launch again", commit, r.Head)
	}
	return commit, err
}

func (g *Gateway) bringURL(ctx context.Context, repo git, r OpenRequest, s *scratch) (string, error) {
	ref := r.Ref
	if ref == "" {
		ref = "HEAD"
	}
	if problem := mission.CheckRef(ref); problem != "" {
		return "", refuse(BadRef, "%q %s; name a branch, a tag or a full commit id", ref, problem)
	}
	address, protocol, err := g.source(r.URL)
	if err != nil {
		return "", err
	}
	remote := repo.allowing(protocol)
	remote.settings = append(remote.settings, g.gitConfig...)
	remote.env = append(remote.env, "GIT_CONFIG_GLOBAL="+g.trust())
	err = fetch(ctx, remote, address, ref, s.ref())
	var failure *gitError
	switch {
	case errors.As(err, &failure) && failure.says("couldn't find remote ref", "not our ref", "unadvertised object"):
		return "", refuse(BadRef, "%s has no branch, tag or commit %s", mission.RedactGit(r.URL), ref)
	case errors.As(err, &failure):
		return "", refuse(Unreadable, "cannot fetch %s: %s", mission.RedactGit(r.URL), failure.sentence())
	case err != nil:
		return "", err
	}
	commit, err := fetched(ctx, repo, s.ref())
	if errors.As(err, &failure) {
		return "", refuse(BadRef, "%s of %s is not a commit", ref, mission.RedactGit(r.URL))
	}
	return commit, err
}

func fetch(ctx context.Context, repo git, source, ref, into string) error {
	_, err := repo.output(ctx, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
		"--no-recurse-submodules", "--end-of-options", source, "+"+ref+":"+into)
	return err
}

// fetched is the commit of what was fetched; a tag leads to its commit.
func fetched(ctx context.Context, repo git, ref string) (string, error) {
	return repo.output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
}

// source returns what git may fetch from and over which protocol.
func (g *Gateway) source(address string) (string, string, error) {
	shown := mission.RedactGit(address)
	if problem := mission.CheckGit(address); problem != "" {
		return "", "", refuse(BadURL, "%q %s; name a repository by a URL", shown, problem)
	}
	scheme, rest, isURL := strings.Cut(address, "://")
	switch {
	case strings.HasPrefix(address, "/"):
		return g.local(address)
	case isURL && scheme == "file":
		parsed, err := url.Parse(address)
		if err != nil || parsed.Host != "" || parsed.Path == "" {
			return "", "", refuse(BadURL, "%q names no path; write file:///PATH", shown)
		}
		return g.local(parsed.Path)
	case !isURL:
		if !(mission.Workspace{Git: address}).Remote() {
			return "", "", refuse(BadURL, "%q is a relative path, which a gateway cannot see; launch it from where it is", shown)
		}
		scheme, rest = "ssh", address
	}
	if !slices.Contains(g.protocols, scheme) {
		return "", "", refuse(BadURL, "%q uses the protocol %s, which is not allowed; this gateway allows %s", shown, scheme, strings.Join(g.protocols, ", "))
	}
	if _, host, named := strings.Cut(rest, "@"); strings.HasPrefix(rest, "-") || named && strings.HasPrefix(host, "-") {
		return "", "", refuse(BadURL, "%q has a host that starts with a dash", shown)
	}
	return address, scheme, nil
}

// local resolves a path, which must lie under a root whatever links it contains.
func (g *Gateway) local(path string) (string, string, error) {
	outside := refuse(BadURL, "%q lies outside of the directories this gateway may read", path)
	if !slices.Contains(g.protocols, "file") {
		return "", "", refuse(BadURL, "%q is a path, and the protocol file is not allowed; this gateway allows %s", path, strings.Join(g.protocols, ", "))
	}
	path = filepath.Clean(path)
	resolved, err := filepath.EvalSymlinks(path)
	switch {
	case err != nil && g.underRoot(path):
		return "", "", refuse(Unreadable, "%q cannot be read: there is no such directory", path)
	case err != nil || !g.underRoot(resolved):
		return "", "", outside
	}
	return resolved, "file", nil
}

func (g *Gateway) underRoot(path string) bool {
	return slices.ContainsFunc(g.roots, func(root string) bool {
		relative, err := filepath.Rel(root, path)
		return err == nil && relative != ".." && !strings.HasPrefix(relative, "../")
	})
}

// manyPacks is when a repository's packs are merged. Each commit adds one.
const manyPacks = 50

// tidy keeps a repository of many launches fast. Nothing depends on it.
func (g *Gateway) tidy(ctx context.Context, name string, repo git) {
	packs, err := filepath.Glob(filepath.Join(g.directory(name), "objects", "pack", "*.pack"))
	if err != nil || len(packs) < manyPacks {
		return
	}
	// Geometric merging keeps objects that no ref reaches yet.
	if _, err := repo.slowly().output(ctx, "repack", "--quiet", "--geometric=2", "-d"); err != nil {
		g.log.Warn("merging packs failed", "mission", name, "error", err)
	}
}
