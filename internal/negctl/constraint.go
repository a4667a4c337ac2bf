package negctl

import (
	"reflect"
	"time"

	"tidewait/internal/capacity"
)

// constraintControls are about what cannot be written, whatever the code does.
var constraintControls = []Control{
	{
		ID: "9", Provoked: "a capacity refusal kept as a capability refusal and the other way round, and a node booked beyond its total",
		Expected: "the two are different types, of which neither can become the other, and the database refuses each",
		run:      neverTheOther,
	},
}

func neverTheOther(t *trial) {
	now, never := reflect.TypeFor[*capacity.CapacityRefusal](), reflect.TypeFor[*capacity.CapabilityRefusal]()
	equal(t, "a capability refusal can be converted to a capacity refusal", false, never.ConvertibleTo(now) || never.Elem().ConvertibleTo(now.Elem()))
	equal(t, "a capacity refusal can be converted to a capability refusal", false, now.ConvertibleTo(never) || now.Elem().ConvertibleTo(never.Elem()))

	d := t.storeOnly()
	d.register(t, "n1", 1024)
	d.register(t, "n2", 1024)
	d.end(t, d.placed(t, "over"))
	d.placed(t, "holder1")
	d.placed(t, "holder2")
	if d.first(t, d.launch(t, "waits", 900, time.Hour)).Waiting == nil {
		t.fail("the phase does not wait")
	}
	for _, c := range []struct{ what, sql, constraint string }{
		{"a wait for capacity with a capability's code", "UPDATE capacity_waits SET code = 'exceeds_every_node'", "capacity_waits_code"},
		{"that in the history", "INSERT INTO wait_history (mission_id, kind, code, reason, since, ended_at, ended_by) SELECT id, 'capacity', 'backend_unsupported', '', now(), now(), 'expired' FROM missions LIMIT 1", "wait_history_code"},
		{"a phase that failed for capacity", "UPDATE mission_phases SET failure_code = 'capacity_memory' WHERE status = 'succeeded'", "mission_phases_failure_code"},
		{"a draft that was refused for capacity", "UPDATE missions SET failure_code = 'capacity_memory'", "missions_failure_code"},
		{"a launch that failed for capacity", "UPDATE mission_launches SET failure_code = 'held_for_head'", "mission_launches_failure_code"},
		{"a running phase that waits", "UPDATE mission_phases SET capacity_blocked_since = now(), capacity_note = 'x' WHERE status = 'running'", "mission_phases_check1"},
		{"memory booked beyond its total", "UPDATE nodes SET memory_reserved = memory_total + 1", "nodes_check1"},
		{"CPUs booked beyond their total", "UPDATE nodes SET cpu_reserved = cpu_total + 1", "nodes_check"},
	} {
		_, err := d.db.Exec(t.ctx, c.sql)
		equal(t, "constraint against "+c.what, c.constraint, t.constraint(err))
	}
}

// placed is a phase that has a node.
func (d *tables) placed(t *trial, name string) int64 {
	phase := d.launch(t, name, 900, time.Hour)
	if d.first(t, phase).Placed == nil {
		t.fail("phase %s is not placed", name)
	}
	return phase
}
