package negctl

import "time"

// launchControls are about what no known node could ever run.
var launchControls = []Control{
	{
		ID: "1-empty", Provoked: "a mission in a fleet without nodes",
		Expected: "the launch is refused with no_nodes_registered, exit 3; the mission stays a draft without any row",
		run: func(t *trial) {
			t.refused(work("m", "256Mi", "true"), "no_nodes_registered")
		},
	},
	{
		ID: "1-backend", Provoked: "a mission that asks for a backend nobody has",
		Expected: "the launch is refused with backend_unsupported, exit 3; the mission stays a draft without any row",
		run: func(t *trial) {
			t.node("n1")
			t.refused(document{name: "m", backend: "microvm", phases: []phase{{script: "true"}}}, "backend_unsupported")
		},
	},
	{
		ID: "2-size", Provoked: "a mission bigger than every node",
		Expected: "the launch is refused with exceeds_every_node, exit 3; the mission stays a draft without any row",
		run: func(t *trial) {
			t.node("n1")
			t.refused(work("m", "2Gi", "true"), "exceeds_every_node")
		},
	},
	{
		ID: "2-down", Provoked: "the same while the only node that is big enough is down",
		Expected: "the launch is accepted, and the phase waits with nodes_lost",
		run: func(t *trial) {
			t.node("n1")
			big := t.node("big", "TIDEWAIT_NODE_MEMORY=4Gi")
			t.must(big.Kill(), "kill the big node")
			t.until("the big node counts as down", func() (bool, error) {
				state, err := t.nodeState("big")
				return state == "down", err
			})
			stderr, code := t.launch(work("m", "2Gi", "true"))
			if code != 0 {
				t.fail("the launch ended with %d: %s", code, stderr)
			}
			w := t.waiting("m")
			equal(t, "code", "nodes_lost", w.Code)
			equal(t, "nodes lost", 1, w.Counts.Lost)
			equal(t, "nodes incapable", 1, w.Counts.Incapable)
			_, runs, _ := t.rows("m")
			equal(t, "runs", 0, runs)
		},
	},
	{
		ID: "2-retired", Provoked: "the same when the only node that is big enough is retired",
		Expected: "the launch is refused with exceeds_every_node, exit 3; the mission stays a draft without any row",
		run: func(t *trial) {
			t.node("n1")
			big := t.node("big", "TIDEWAIT_NODE_MEMORY=4Gi")
			t.must(big.Kill(), "kill the big node")
			t.do("node", "retire", t.named("big"), "--reason", "a negative control")
			t.refused(work("m", "2Gi", "true"), "exceeds_every_node")
		},
	},
	{
		ID: "8", Provoked: "the only node of the second phase's kind is retired while the first phase runs",
		Expected: "the second phase fails at once with labels_unmatched, and never waits",
		run: func(t *trial) {
			t.node("n1", "TIDEWAIT_NODE_LABELS=zone=a")
			other := t.node("n2", "TIDEWAIT_NODE_LABELS=zone=b")
			t.accepted(document{name: "m", phases: []phase{
				{name: "first", script: "sleep 3; echo done > first.txt", extra: []string{"requires: {labels: {zone: a}}"}},
				{name: "second", script: "true", extra: []string{"requires: {labels: {zone: b}}"}},
			}})
			t.running("m")
			t.must(other.Kill(), "kill the node")
			t.do("node", "retire", t.named("n2"), "--reason", "a negative control")

			m := t.over("m")
			equal(t, "mission", "failed", m.Status)
			equal(t, "code", "labels_unmatched", m.FailureCode)
			equal(t, "first phase", "succeeded", m.PhaseList[0].Status)
			equal(t, "second phase", "failed", m.PhaseList[1].Status)
			equal(t, "its runs", 0, len(m.PhaseList[1].Runs))
			equal(t, "its waits", 0, len(m.PhaseList[1].Waits))
			t.within("end of the mission after that of the first phase", 5*time.Second, m.EndedAt.Sub(*m.PhaseList[0].EndedAt))
		},
	},
}

// refused launches a mission, which must be refused for good and leave nothing but
// a draft that says why.
func (t *trial) refused(d document, code string) {
	stderr, exit := t.launch(d)
	equal(t, "exit code", 3, exit)
	t.contains("standard error", code, stderr)
	m := t.show(d.name)
	equal(t, "mission", "draft", m.Status)
	equal(t, "its code", code, m.FailureCode)
	equal(t, "launches", 0, m.Launch)
	waits, runs, phases := t.rows(d.name)
	equal(t, "wait rows", 0, waits)
	equal(t, "runs", 0, runs)
	equal(t, "phases", 0, phases)
}
