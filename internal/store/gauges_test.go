package store_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// TestEveryEndOfAWaitIsCounted: what moves waits into the history tells what it
// moved.
func TestEveryEndOfAWaitIsCounted(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	moves := regexp.MustCompile("(?s)INSERT INTO wait_history.*?`( \\+ returningEnd)?")
	names := regexp.MustCompile(`(?m)^\t?(?:const )?(\w+SQL) = ` + "`" + `\nWITH gone`)
	var statements, named int
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range moves.FindAllStringSubmatch(string(text), -1) {
			statements++
			require.NotEmptyf(t, m[1], "%s: a statement does not return what it ended:\n%s", path, m[0])
		}
		ends, err := os.ReadFile("ends.go")
		require.NoError(t, err)
		for _, m := range names.FindAllStringSubmatch(string(text), -1) {
			named++
			require.Contains(t, string(ends), m[1]+": true", "ends.go does not have it")
		}
	}
	require.Equal(t, 7, statements)
	require.Equal(t, 7, named)
}

// ended collects what a store says of waits that ended.
type ended struct {
	mu   sync.Mutex
	ends []store.WaitEnd
}

func (e *ended) take(_ context.Context, w store.WaitEnd) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.Lasted = w.Lasted.Truncate(time.Hour)
	e.ends = append(e.ends, w)
}

// TestGaugesAndEnds: one look tells what waits, what runs and what is silent, and
// each end of a wait is told once, by the process that ended it.
func TestGaugesAndEnds(t *testing.T) {
	s, db := open(t, rules)
	other := another(t, db, rules)
	var mine, theirs ended
	s.OnWaitEnd(mine.take)
	other.OnWaitEnd(theirs.take)
	ctx := t.Context()
	register(t, s, node("a", 1000), node("b", 10))
	first, second := launch(t, s, draft("first", 1, 1000, time.Hour)), launch(t, s, draft("second", 1, 1000, time.Hour))
	held := launch(t, s, draft("held", 1, 1000, time.Hour))
	require.NotNil(t, look(t, s, first.Phases[0].ID, 1, ledger.WakeFirst).Placed)
	require.NotNil(t, look(t, s, second.Phases[0].ID, 1, ledger.WakeFirst).Waiting)
	require.NotNil(t, gate(t, s, held.Phases[0].ID, ledger.Gate{Hold: &ledger.Hold{}}).Paused)
	_, err := db.Exec(ctx, "UPDATE capacity_waits SET since = since - interval '30 minutes', bound = bound - interval '30 minutes', checked_at = checked_at - interval '40 seconds'")
	require.NoError(t, err)
	_, err = db.Exec(ctx, "UPDATE open_waits SET since = since - interval '2 hours'")
	require.NoError(t, err)
	_, err = db.Exec(ctx, `UPDATE nodes SET leaks = '{"cgroups": 2, "machines": 1}', heartbeat_at = now() - interval '90 minutes' WHERE id = 'b'`)
	require.NoError(t, err)
	_, err = db.Exec(ctx, "UPDATE listening SET since = now() - interval '3 hours', heard_at = now()")
	require.NoError(t, err)

	for _, engine := range []*store.Store{s, other} {
		g, err := engine.Gauges(ctx)
		require.NoError(t, err)
		require.Len(t, g.Waits, 2)
		queued, hold := g.Waits[0], g.Waits[1]
		require.Equal(t, []any{"capacity", "capacity_memory", 1, int64(1)}, []any{queued.Kind, queued.Code, queued.Open, queued.Attempts})
		require.InDelta(t, 30*time.Minute, queued.Oldest, float64(time.Minute))
		require.InDelta(t, 0.5, queued.Spent, 0.02)
		require.InDelta(t, 40*time.Second, queued.Unchecked, float64(20*time.Second))
		require.Zero(t, queued.Unbounded)
		require.Equal(t, []any{"hold", "awaiting_release", "", 1, 0.0, time.Duration(0)}, []any{hold.Kind, hold.Code, hold.Pool, hold.Open, hold.Spent, hold.Unchecked})
		require.InDelta(t, 2*time.Hour, hold.Oldest, float64(time.Minute))
		require.Equal(t, hold.Oldest.Round(time.Minute), hold.Unbounded.Round(time.Minute))
		require.Equal(t, map[capacity.NodeState]int{capacity.Ready: 1, capacity.Suspect: 1}, g.Nodes)
		require.Equal(t, map[string]int64{"cgroups": 2, "machines": 1}, g.Leaks)
		require.Equal(t, 3, g.Missions)
		require.Equal(t, []store.MachineGauge{{Backend: queued.Pool, State: "starting", Runs: 1, Machines: 1}}, g.Machines)
		require.Equal(t, []string{"nats", "signals", "temporal"}, []string{g.Outbox[0].Channel, g.Outbox[1].Channel, g.Outbox[2].Channel})
	}

	release := &ledger.Act{Key: "k", Verb: ledger.ActRelease, Actor: "somebody"}
	require.Nil(t, gate(t, other, held.Phases[0].ID, ledger.Gate{Hold: &ledger.Hold{}, Release: release}).Paused)
	finish(t, s, first.Phases[0].ID)
	require.NotNil(t, look(t, s, second.Phases[0].ID, 1, ledger.WakeNudge).Placed)
	require.NotNil(t, look(t, s, second.Phases[0].ID, 1, ledger.WakeNudge).Placed, "asked again, it ends nothing")
	require.Equal(t, []store.WaitEnd{{Kind: "capacity", Code: "capacity_memory", EndedBy: "placed", WokenBy: "nudge"}}, mine.ends)
	require.Equal(t, []store.WaitEnd{{Kind: "hold", Code: "awaiting_release", EndedBy: "released", Lasted: 2 * time.Hour}}, theirs.ends)
	g, err := s.Gauges(ctx)
	require.NoError(t, err)
	require.Empty(t, g.Waits)
}

// BenchmarkGauges is what one scrape costs the database when ten thousand phases
// wait on a thousand nodes.
func BenchmarkGauges(b *testing.B) {
	s, db := open(b, rules)
	ctx := context.Background()
	register(b, s, node("a", 1000))
	l := launch(b, s, draft("first", 1, 1000, time.Hour))
	look(b, s, l.Phases[0].ID, 1, ledger.WakeFirst)
	for _, sql := range []string{
		`INSERT INTO nodes (id, arch, cpu_total, memory_total, disk_total, slots_total) SELECT 'n' || i, 'amd64', 1, 1, 1, 1 FROM generate_series(1, 1000) i`,
		`INSERT INTO mission_phases (mission_id, launch, ordinal, name, backend, demand, turn, max_wait)
		 SELECT mission_id, launch, i, 'p' || i, backend, demand, turn, max_wait FROM mission_phases, generate_series(100, 10099) i`,
		`INSERT INTO capacity_waits (phase_id, pool, since, bound, code, refusal, checked_at)
		 SELECT id, 'microvm', now(), now() + interval '1 hour', 'capacity_memory', jsonb_build_object('nodes', repeat('x', 800)), now()
		 FROM mission_phases WHERE ordinal >= 100`,
		`ANALYZE`,
	} {
		_, err := db.Exec(ctx, sql)
		require.NoError(b, err)
	}
	for b.Loop() {
		g, err := s.Gauges(ctx)
		require.NoError(b, err)
		require.Equal(b, 10000, g.Waits[0].Open)
	}
}
