package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Chain is a launch from the commit it started from to where its branch stands.
type Chain struct {
	Base    string
	Commits []string          // of the branch behind Base, oldest first
	Partial map[string]string // commits of partial branches by phase
}

// Head is the commit the branch is at.
func (c Chain) Head() string {
	if len(c.Commits) == 0 {
		return c.Base
	}
	return c.Commits[len(c.Commits)-1]
}

// Has reports whether a commit is the chain's base or one of its commits.
func (c Chain) Has(commit string) bool { return commit == c.Base || slices.Contains(c.Commits, commit) }

// Chain returns the commits of a launch.
func (g *Gateway) Chain(ctx context.Context, name string, launch int) (Chain, error) {
	repo, checkout, err := g.openCheckout(ctx, name, launch)
	if err != nil {
		return Chain{}, err
	}
	chain := Chain{Base: checkout.Base, Partial: map[string]string{}}
	out, err := repo.output(ctx, "rev-list", "--reverse", "--first-parent", checkout.Base+".."+checkout.Head, "--")
	if err != nil {
		return Chain{}, fmt.Errorf("commits of branch %s: %w", checkout.Branch, err)
	}
	chain.Commits = strings.Fields(out)
	prefix := partialRef(name, launch, "")
	if out, err = repo.output(ctx, "for-each-ref", "--format=%(refname) %(objectname)", prefix); err != nil {
		return Chain{}, fmt.Errorf("partial results of branch %s: %w", checkout.Branch, err)
	}
	for line := range strings.Lines(out) {
		ref, commit, _ := strings.Cut(strings.TrimSpace(line), " ")
		chain.Partial[strings.TrimPrefix(ref, prefix)] = commit
	}
	return chain, nil
}

// BundleSince writes a git bundle of a launch's branch to w, or of the partial
// branch of a phase, without the history of since, which whoever reads the bundle
// has to have. An empty since leaves nothing out.
func (g *Gateway) BundleSince(ctx context.Context, name string, launch int, phase, since string, w io.Writer) (Bundle, error) {
	repo, checkout, err := g.openCheckout(ctx, name, launch)
	if err != nil {
		return Bundle{}, err
	}
	ref, head := branchRef(name, launch), checkout.Head
	if phase != "" {
		ref = partialRef(name, launch, phase)
		if head, err = repo.output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}"); err != nil {
			return Bundle{}, fmt.Errorf("branch %s: %w", PartialBranch(name, launch, phase), err)
		}
	}
	revisions := []string{ref}
	if since != "" {
		if !isCommit(since) {
			return Bundle{}, refuse(BadRef, "%q is not a full commit id", since)
		}
		revisions = append(revisions, "^"+since)
	}
	bundle, err := writeBundle(ctx, repo, head, strings.TrimPrefix(ref, "refs/heads/"), w, revisions...)
	if err != nil {
		return Bundle{}, err
	}
	// Git reads the branch by itself, and somebody may have moved it meanwhile.
	bundle.Head, err = repo.output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	if err == nil && bundle.Head != head {
		err = fmt.Errorf("branch %s moved from commit %.12s to %.12s while it was bundled", bundle.Ref, head, bundle.Head)
	}
	return bundle, err
}

// Read reads everything that [Gateway.BundleSince] would put into a bundle, and
// fails when git cannot. Git makes a bundle of damaged objects without a word.
func (g *Gateway) Read(ctx context.Context, name string, launch int, phase, since string) error {
	repo, err := g.existing(name)
	if err != nil {
		return err
	}
	ref := branchRef(name, launch)
	if phase != "" {
		ref = partialRef(name, launch, phase)
	}
	args := []string{"rev-list", "--objects", "--no-object-names", ref}
	if since != "" {
		args = append(args, "^"+since)
	}
	objects, err := repo.slowly().output(ctx, append(args, "--")...)
	if err == nil {
		err = repo.slowly().run(ctx, strings.NewReader(objects+"\n"), io.Discard, "cat-file", "--batch", "--buffer")
	}
	if err != nil {
		return fmt.Errorf("read launch %d of mission %s: %w", launch, name, err)
	}
	return nil
}

// Kept is a bundle made by [Gateway.BundleSince] that is read back.
type Kept struct {
	Phase  string // whose partial branch it is of; empty: the launch's own
	Commit string // the branch is at with it
	Open   func() io.ReadCloser
}

// Restore makes a launch again from its bundles, oldest first: of a repository
// that is not there, or lacks some of them. What is there is kept, and a branch
// moves only forward. Nothing is seen of it before all of it is there.
func (g *Gateway) Restore(ctx context.Context, name string, launch int, base string, bundles []Kept) error {
	if err := g.lay(); err != nil {
		return err
	}
	s, err := newScratch(g.scratches())
	if err != nil {
		return err
	}
	defer s.remove()
	repo, err := g.created(ctx, name, s)
	if err != nil {
		return err
	}
	refs := map[string]string{}
	defer func() {
		for i := range bundles {
			_, _ = repo.output(context.WithoutCancel(ctx), "update-ref", "-d", restored(s, i)) // else the next sweep does
		}
	}()
	for i, b := range bundles {
		if err := readBack(ctx, repo, s, i, name, launch, b); err != nil {
			return fmt.Errorf("restore launch %d of mission %s: %w", launch, name, err)
		}
		ref := branchRef(name, launch)
		if b.Phase != "" {
			ref = partialRef(name, launch, b.Phase)
		}
		refs[ref] = b.Commit
	}
	refs[baseRef(launch)] = base
	return forward(ctx, repo, refs)
}

// restored is the ref under which a bundle's commit stands until all are read.
func restored(s *scratch, i int) string { return fmt.Sprintf("%s-%d", s.ref(), i) }

// readBack takes one bundle into a repository.
func readBack(ctx context.Context, repo git, s *scratch, i int, name string, launch int, b Kept) error {
	file, err := s.create(fmt.Sprintf("bundle-%d", i))
	if err != nil {
		return err
	}
	defer file.Close()
	source := b.Open()
	_, err = io.Copy(file, source)
	if err = errors.Join(err, source.Close()); err != nil {
		return fmt.Errorf("read the bundle of commit %.12s: %w", b.Commit, err)
	}
	if is, err := isBundle(file.Name()); err != nil {
		return err
	} else if !is {
		return refuse(Damaged, "what is kept of commit %.12s is not a git bundle", b.Commit)
	}
	ref := branchRef(name, launch)
	if b.Phase != "" {
		ref = partialRef(name, launch, b.Phase)
	}
	if err := fetch(ctx, repo.allowing("file"), file.Name(), ref, restored(s, i)); err != nil {
		return fmt.Errorf("read the bundle of commit %.12s: %w", b.Commit, err)
	}
	commit, err := fetched(ctx, repo, restored(s, i))
	if err == nil && commit != b.Commit {
		return refuse(Damaged, "a bundle holds commit %.12s, not %.12s as is recorded", commit, b.Commit)
	}
	return err
}

// forward moves refs to commits, in one transaction, unless they are further
// already.
func forward(ctx context.Context, repo git, refs map[string]string) error {
	var steps strings.Builder
	steps.WriteString("start\n")
	for ref, commit := range refs {
		old, err := repo.output(ctx, "for-each-ref", "--format=%(objectname)", ref)
		if err != nil {
			return err
		}
		switch {
		case old == "":
			fmt.Fprintf(&steps, "create %s %s\n", ref, commit)
		case old != commit && isAncestor(ctx, repo, old, commit):
			fmt.Fprintf(&steps, "update %s %s %s\n", ref, commit, old)
		}
	}
	steps.WriteString("commit\n")
	return repo.run(ctx, strings.NewReader(steps.String()), nil, "update-ref", "--stdin")
}

func isAncestor(ctx context.Context, repo git, earlier, later string) bool {
	_, err := repo.output(ctx, "merge-base", "--is-ancestor", earlier, later)
	return err == nil
}

// strangeContent is the one bit of fsck's exit status that says nothing of damage:
// an object is whole, and git finds something in it that it would not do itself,
// such as a date before 1970 or a submodule of an odd address. What is damaged and
// needed by a branch sets another bit, too.
const strangeContent = 1

// Damage says what is wrong with a mission's repository, or nothing when all that
// its branches need is there and whole, or there is no repository. A deep look
// reads every object, a shallow one those that hold the others together. What
// somebody put into a file is no damage, however odd git finds it.
func (g *Gateway) Damage(ctx context.Context, name string, deep bool) (string, error) {
	repo, err := g.existing(name)
	var refused *Refused
	if errors.As(err, &refused) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	args := []string{"fsck", "--no-dangling", "--no-reflogs", "--no-progress"}
	if !deep {
		args = append(args, "--connectivity-only")
	}
	_, err = repo.slowly().output(ctx, args...)
	var failure *gitError
	if !GitFailed(err) || !errors.As(err, &failure) {
		return "", err
	}
	if failure.status() == strangeContent {
		return "", nil
	}
	return failure.sentence(), nil
}

// SetAside takes a mission's repository out of use and returns where it is now.
// Another one is made when it is next needed.
func (g *Gateway) SetAside(name string) (string, error) {
	if _, err := g.existing(name); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(g.damaged(), name+"-")
	if err != nil {
		return "", err
	}
	aside := filepath.Join(dir, filepath.Base(g.directory(name)))
	return aside, os.Rename(g.directory(name), aside)
}
