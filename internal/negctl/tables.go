package negctl

import (
	"context"
	"encoding/json"
	"time"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/store"
)

// pool is that of all controls of the store alone.
const pool = "process"

// register makes a node with so much memory, in MiB, and the gateway.
func (d *tables) register(t *trial, node string, memory int64) {
	_, err := d.store.Heartbeat(t.ctx, api.Heartbeat{
		Node: node, BootID: "boot", Version: "1", Arch: "amd64",
		Total:    capacity.Resources{CPUMilli: 4000, MemoryMiB: memory, DiskMiB: 100_000, Slots: 16},
		Backends: map[string]api.Backend{pool: {OK: true, Accel: "none"}},
	})
	t.must(err, "register node "+node)
	_, err = d.store.GatewayHeartbeat(t.ctx, api.GatewayHeartbeat{Gateway: "gw"})
	t.must(err, "register a gateway")
}

// launch launches a mission of one phase and returns the phase.
func (d *tables) launch(t *trial, name string, memory int64, maxWait time.Duration) int64 {
	l, refused, err := d.store.Launch(t.ctx, store.Draft{
		Name: name, Actor: "negctl", WorkflowRun: name, Document: json.RawMessage(`{}`), Priority: 50,
		Phases: []store.DraftPhase{{Name: "work", Demand: demandOf(memory), Turn: time.Hour, MaxWait: maxWait}},
	})
	t.must(err, "launch "+name)
	if len(refused) > 0 {
		t.fail("the launch of %s was refused: %v", name, refused)
	}
	return l.Phases[0].ID
}

// look asks for a node for a phase.
func (d *tables) look(ctx context.Context, l store.Look) (ledger.Outcome, error) {
	res, err := d.store.Pass(ctx, pool, []store.Look{l}, l.Wake)
	return res.Outcomes[l.PhaseID], err
}

// first is a phase's first look.
func (d *tables) first(t *trial, phase int64) ledger.Outcome {
	o, err := d.look(t.ctx, store.Look{PhaseID: phase, Attempt: 1, Wake: ledger.WakeFirst})
	t.must(err, "look")
	return o
}

// end lets a phase succeed, which frees its node.
func (d *tables) end(t *trial, phase int64) {
	_, err := d.store.FinishPhase(t.ctx, phase, ledger.RunEnd{Status: "succeeded"}, ledger.Ended{Status: "succeeded"})
	t.must(err, "finish a phase")
}

func (d *tables) count(t *trial, sql string, args ...any) int {
	var n int
	t.must(d.db.QueryRow(t.ctx, sql, args...).Scan(&n), "ask the database")
	return n
}

// lookWhileHeld asks for a node while a transaction holds the row of node small.
// When the look waits for that, the transaction executes change and commits.
func (d *tables) lookWhileHeld(t *trial, phase int64, change string) ledger.Outcome {
	tx, err := d.db.Begin(t.ctx)
	t.must(err, "begin")
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.ctx)) }()
	_, err = tx.Exec(t.ctx, "SELECT 1 FROM nodes WHERE id = 'small' FOR UPDATE")
	t.must(err, "hold the node")
	type answer struct {
		outcome ledger.Outcome
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		o, err := d.look(t.ctx, store.Look{PhaseID: phase, Attempt: 1, Wake: ledger.WakeFirst})
		answered <- answer{o, err}
	}()
	t.until("the look waits for the node", func() (bool, error) {
		var waiting int
		err := t.db.QueryRow(t.ctx, "SELECT count(*) FROM pg_locks l JOIN pg_database b ON b.datname = $1 WHERE NOT l.granted AND l.pid IN (SELECT pid FROM pg_stat_activity WHERE datid = b.oid)",
			d.db.Config().Database).Scan(&waiting)
		return waiting > 0, err
	})
	_, err = tx.Exec(t.ctx, change)
	t.must(err, "change the node")
	t.must(tx.Commit(t.ctx), "commit")
	a := <-answered
	t.must(a.err, "look at a phase whose node was busy")
	return a.outcome
}
