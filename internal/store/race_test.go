package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// TestExpiryAgainstFreedCapacity lets a wait's last look race the pass that
// follows freed capacity, a thousand times. Either the phase runs, or it has
// failed and holds nothing.
func TestExpiryAgainstFreedCapacity(t *testing.T) {
	const rounds = 1000
	ctx := context.Background()
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	holders := launch(t, s, draft("holder", rounds, 1000, time.Hour)).Phases
	waiters := launch(t, s, draft("waiter", rounds, 1000, time.Microsecond)).Phases
	ran := 0
	for i := range rounds {
		require.NotNil(t, look(t, s, holders[i].ID, 1, ledger.WakeFirst).Placed)
		id := waiters[i].ID
		require.NotNil(t, look(t, s, id, 1, ledger.WakeFirst).Waiting)
		var wg sync.WaitGroup
		freed := make(chan struct{})
		wg.Go(func() {
			_, err := s.FinishPhase(ctx, holders[i].ID, ledger.RunEnd{Status: "succeeded"}, ledger.Ended{Status: "succeeded"})
			close(freed)
			if err == nil {
				_, err = s.Pass(ctx, pool, nil, ledger.WakeEvent)
			}
			if err != nil {
				t.Error(err)
			}
		})
		var outcome ledger.Outcome
		wg.Go(func() {
			if i%2 == 0 {
				<-freed // else the last look is nearly always first
			}
			res, err := s.Pass(ctx, pool, []store.Look{{PhaseID: id, Attempt: 1, Wake: ledger.WakeTimer, Expire: true}}, ledger.WakeTimer)
			if err != nil {
				t.Error(err)
			}
			outcome = res.Outcomes[id]
		})
		wg.Wait()

		switch {
		case outcome.Placed != nil:
			ran++
			finish(t, s, id)
		case outcome.Ended != nil:
			require.Equal(t, "wait_exceeded", outcome.Ended.FailureCode)
		default:
			t.Fatalf("round %d: %+v", i, outcome)
		}
		require.Zero(t, count(t, db, "SELECT count(*) FROM reservations WHERE released_at IS NULL"), "round %d leaks", i)
	}
	require.Greater(t, ran, rounds/10)
	require.Less(t, ran, rounds*9/10)
}

func TestAuditFindsWrongCounters(t *testing.T) {
	s, db := open(t, rules)
	register(t, s, node("a", 1024))
	_, err := db.Exec(context.Background(), "UPDATE nodes SET cpu_reserved = 7")
	require.NoError(t, err)

	wrong, err := s.Audit(context.Background())

	require.NoError(t, err)
	require.Equal(t, "[{a {7 0 0 0} {0 0 0 0}}]", fmt.Sprint(wrong))
}
