package gateway

import (
	"context"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tidewait/internal/api"
	"tidewait/internal/workspace"
)

// Kept is a launch as its gateway has kept it in the object store, for whoever cannot
// ask the gateway. Everything that was answered as committed is in it. It is safe for
// concurrent use.
type Kept struct {
	Gateway string    // that kept it last
	At      time.Time // when
	Mission string
	Launch  int

	checkouts *workspace.Gateway
}

// OpenKept makes a launch again from its bundles, in a directory that is the
// caller's to remove. It returns nil when nothing is kept of the launch.
func OpenKept(ctx context.Context, js jetstream.JetStream, store jetstream.ObjectStore, dir, mission string, launch int) (*Kept, error) {
	r, err := readRecord(ctx, store, mission, launch)
	if err != nil || r == nil || len(r.Bundles) == 0 {
		return nil, err
	}
	info, err := store.GetInfo(ctx, recordName(mission, launch))
	if err != nil {
		return nil, err
	}
	checkouts, err := workspace.New(dir, workspace.Options{})
	if err != nil {
		return nil, err
	}
	if err := r.restore(ctx, js.Conn(), store, checkouts); err != nil {
		return nil, err
	}
	return &Kept{Gateway: r.Gateway, At: info.ModTime.UTC(), Mission: mission, Launch: launch, checkouts: checkouts}, nil
}

// Results are what the phases have committed.
func (k *Kept) Results(ctx context.Context) (api.Results, error) {
	return readResults(ctx, k.checkouts, api.ResultsRequest{Mission: k.Mission, Launch: k.Launch})
}

// Diff is what a phase changed.
func (k *Kept) Diff(ctx context.Context, phase string, stat bool) (api.Diff, error) {
	return readDiff(ctx, k.checkouts, api.DiffRequest{Mission: k.Mission, Launch: k.Launch, Phase: phase, Stat: stat})
}

// Bundle writes a git bundle of the launch's branch to w, or of the partial branch of
// a phase, and returns the name of the branch.
func (k *Kept) Bundle(ctx context.Context, partial string, w io.Writer) (branch string, err error) {
	_, err = writeBranch(ctx, k.checkouts, api.ResultsRequest{Mission: k.Mission, Launch: k.Launch, Partial: partial}, w)
	if partial != "" {
		return workspace.PartialBranch(k.Mission, k.Launch, partial), err
	}
	return workspace.Branch(k.Mission, k.Launch), err
}

// Archive writes a tar of the files of a phase's commit to w, or of the latest one,
// and returns the commit.
func (k *Kept) Archive(ctx context.Context, phase string, w io.Writer) (commit string, err error) {
	commit, err = k.checkouts.PhaseCommit(ctx, k.Mission, k.Launch, phase)
	if err != nil {
		return "", err
	}
	_, err = k.checkouts.Archive(ctx, k.Mission, commit, w)
	return commit, err
}
