package workflows_test

import (
	"context"
	"sync"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/workflows"
)

// book makes fakes remember what the database would: which launch there is, how
// phases ended, and where the branch is.
type book struct {
	mu     sync.Mutex
	run    string // of the workflow that launched
	ended  map[int64]ledger.Ended
	commit string
	finish []ledger.MissionEnd
}

func newBook(f *fakes) *book {
	b := &book{ended: map[int64]ledger.Ended{}, commit: "c0"}
	f.launch, f.place, f.finishPhase, f.finishMission = b.launch, b.place, b.finishPhase, b.finishMission
	f.openCheckout, f.commitResults = b.openCheckout, b.commitResults
	return b
}

func (b *book) launch(_ context.Context, in workflows.LaunchInput) (workflows.LaunchResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run != "" && b.run != in.RunID {
		return workflows.LaunchResult{}, final("the mission is running", api.ErrTypeRunning)
	}
	b.run = in.RunID
	return launchResult(), nil
}

func (b *book) place(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ended, ok := b.ended[in.PhaseID]; ok {
		return ledger.Outcome{Ended: &ended}, nil
	}
	o := placedOn("node-a", in.Attempt)
	if in.PhaseID == 8 {
		o.Placed.RunID = "r8-1"
	}
	return o, nil
}

func (b *book) finishPhase(_ context.Context, in workflows.FinishPhaseInput) (ledger.Ended, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.ended[in.PhaseID]; !ok {
		b.ended[in.PhaseID] = in.End
	}
	return b.ended[in.PhaseID], nil
}

func (b *book) finishMission(_ context.Context, in workflows.FinishMissionInput) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range []int64{7, 8} {
		if _, ok := b.ended[id]; !ok {
			b.ended[id] = ledger.Ended{Status: "cancelled", FailureCode: "mission_ended", Failure: "the mission ended before this phase"}
		}
	}
	b.finish = append(b.finish, in.End)
	return nil
}

func (b *book) openCheckout(context.Context, workflows.OpenCheckoutInput) (workflows.Checkout, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return checkoutAt(b.commit), nil
}

func (b *book) commitResults(_ context.Context, in workflows.CommitResultsInput) (workflows.Checkout, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	after := checkoutAfter[in.Phase]
	if in.Parent == b.commit {
		b.commit = after.Commit
	}
	return after, nil
}

// phase returns how a phase ended; an empty status when it is open.
func (b *book) phase(id int64) ledger.Ended {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended[id]
}

// missions returns every end that the mission was given.
func (b *book) missions() []ledger.MissionEnd {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]ledger.MissionEnd(nil), b.finish...)
}
