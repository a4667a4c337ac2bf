package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// PartialBranch returns the name of the branch of what a phase had made when it
// was cancelled. No phase starts from it, and the launch's own branch does not
// move.
func PartialBranch(mission string, launch int, phase string) string {
	return Branch(mission, launch) + "-partial/" + phase
}

func partialRef(mission string, launch int, phase string) string {
	return "refs/heads/" + PartialBranch(mission, launch, phase)
}

// CommitPartial commits what a run had made when it was ended early, for which
// r.Partial is the reason, onto Parent and sets the phase's partial branch to it.
// The results are checked like those of a whole run.
func (g *Gateway) CommitPartial(ctx context.Context, r CommitRequest) (CommitResult, error) {
	if err := r.check(g.limits); err != nil {
		return CommitResult{}, err
	}
	repo, _, err := g.openCheckout(ctx, r.Mission, r.Launch)
	if err != nil {
		return CommitResult{}, err
	}
	result, err := g.makeCommit(ctx, repo, r)
	if err != nil {
		return CommitResult{}, err
	}
	if err := r.admitted(); err != nil {
		return CommitResult{}, err
	}
	if _, err := repo.output(ctx, "update-ref", partialRef(r.Mission, r.Launch, r.Phase), result.Commit); err != nil {
		return CommitResult{}, fmt.Errorf("moving branch %s: %w", PartialBranch(r.Mission, r.Launch, r.Phase), err)
	}
	return result, nil
}

// CommittedPartial returns the commit that [Gateway.CommitPartial] made of a run
// earlier, and whether there is one.
func (g *Gateway) CommittedPartial(ctx context.Context, r CommitRequest) (CommitResult, bool, error) {
	if err := r.check(g.limits); err != nil {
		return CommitResult{}, false, err
	}
	repo, _, err := g.openCheckout(ctx, r.Mission, r.Launch)
	if err != nil {
		return CommitResult{}, false, err
	}
	commit, err := repo.output(ctx, "for-each-ref", "--format=%(objectname)", partialRef(r.Mission, r.Launch, r.Phase))
	if err != nil || commit == "" {
		return CommitResult{}, false, err
	}
	result, err := committed(ctx, repo, Checkout{Branch: "of partial results", Base: commit + "^", Head: commit}, r)
	var superseded *Superseded
	if errors.As(err, &superseded) {
		return CommitResult{}, false, nil // it is of another run
	}
	return result, err == nil, err
}

// Partials returns the commits of the phases of a launch that were cancelled and
// whose work was kept, by the name of the phase.
func (g *Gateway) Partials(ctx context.Context, name string, launch int) ([]CommitInfo, error) {
	repo, _, err := g.openCheckout(ctx, name, launch)
	if err != nil {
		return nil, err
	}
	out, err := repo.output(ctx, "for-each-ref", "--format=%(objectname)", partialRef(name, launch, ""))
	if err != nil {
		return nil, fmt.Errorf("partial results of launch %d of mission %s: %w", launch, name, err)
	}
	var infos []CommitInfo
	for commit := range strings.FieldsSeq(out) {
		info, err := log(ctx, repo, Checkout{Branch: "of partial results", Base: commit + "^", Head: commit})
		if err != nil {
			return nil, err
		}
		infos = append(infos, info...)
	}
	return infos, nil
}

// BundlePartial writes a git bundle of a phase's partial branch to w, for
// [FetchInto], with the whole history.
func (g *Gateway) BundlePartial(ctx context.Context, name string, launch int, phase string, w io.Writer) (Bundle, error) {
	repo, _, err := g.openCheckout(ctx, name, launch)
	if err != nil {
		return Bundle{}, err
	}
	ref, branch := partialRef(name, launch, phase), PartialBranch(name, launch, phase)
	head, err := repo.output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	var failure *gitError
	if errors.As(err, &failure) {
		return Bundle{}, refuse(Missing, "launch %d of mission %s has no partial results of a phase %s", launch, name, phase)
	}
	if err != nil {
		return Bundle{}, err
	}
	return writeBundle(ctx, repo, head, branch, w, ref)
}
