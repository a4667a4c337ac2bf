package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// hostile is a phase that does harm to its machine, its node or its gateway, and
// how it must end.
type hostile struct {
	name, script, code, says string
	turn                     bool     // it does not end by itself
	or                       []string // other codes, where it depends on which limit is met first
}

// hostiles are those of every backend.
var hostiles = []hostile{
	{name: "floods", script: "cat /dev/zero & a=$!; cat /dev/zero >&2 & b=$!; sleep 4; kill $a $b; exit 3", code: "command_failed", says: `command "sh" exited with code 3`},
	{name: "forks", script: "f() { f | f & }; f; sleep 600", code: "turn_exceeded", or: []string{"out_of_memory", "command_failed"}, turn: true},
	{name: "memory", script: "tail /dev/zero", code: "out_of_memory", says: "of memory ran out"},
	{name: "disk", script: "cat /dev/zero > big || exit 5", code: "command_failed", says: `command "sh" exited with code 5`},
	{name: "link", script: "ln -s /etc/shadow l", code: "results_refused", says: `"l" is a link to the absolute name /etc/shadow`},
	{name: "name", script: `touch "$(printf 'bad\377')"`, code: "collect_failed", says: "is not valid UTF-8"},
}

// TestHostileMissions runs them all at once on one node, beside a mission that
// works: that one succeeds, each of the others ends as it must, the agent does not
// grow, and nothing is left.
func TestHostileMissions(t *testing.T) {
	for backend, more := range map[string][]hostile{
		"process": {{name: "kills", script: "kill -KILL -1; exit 4", code: "command_failed", says: `command "sh" exited with code 4`}},
		"microvm": {{name: "kills", script: "echo c > /proc/sysrq-trigger; sleep 600", code: "machine_died", says: "the machine was lost while running the command"}},
	} {
		t.Run(backend, func(t *testing.T) {
			long(t, time.Minute)
			p := start(t, longGrace...)
			agent := p.node(append(append([]string{}, longGrace...), "TIDEWAIT_NODE_BACKENDS="+backend, "TIDEWAIT_NODE_CPUS=16", "TIDEWAIT_NODE_MEMORY=6Gi",
				"TIDEWAIT_NODE_DISK=8Gi", "TIDEWAIT_NODE_KILL_GRACE=1s", "TIDEWAIT_NODE_BOOT_TIMEOUT=60s", "TIDEWAIT_NODE_PROBE_TIMEOUT=2m")...)
			p.launch(missionDoc{name: "good", backend: backend, phases: []phaseDoc{{name: "work", script: "for i in 1 2 3 4 5 6 7 8; do sleep 1; echo $i >> count.txt; done"}}})
			all := append(append([]hostile{}, hostiles...), more...)
			for _, h := range all {
				m := missionDoc{name: h.name, backend: backend, phases: []phaseDoc{{name: "work", script: h.script}}}
				if h.turn {
					m.extra = "turn: 10s"
				}
				p.launch(m)
			}
			for _, h := range all {
				m := p.ended(h.name)
				require.Equal(t, "failed", m.Status, "%s: %s", h.name, m.Failure)
				require.Contains(t, append(h.or, h.code), m.FailureCode, "%s: %s", h.name, m.Failure)
				t.Logf("%s ended as %s: %s", h.name, m.FailureCode, m.Failure)
				require.Contains(t, m.Failure, h.says, h.name)
				require.Empty(t, m.PhaseList[0].Commit)
				require.Len(t, m.PhaseList[0].Runs, 1, "%s: it is not run again", h.name)
			}
			require.Equal(t, "succeeded", p.ended("good").Status)
			require.Less(t, mostResident(t, agent.PID()), 256, "MiB of memory of the agent")
			p.nothingLeft()
			var n api.NodeDetail
			require.NoError(t, jsonOf(p.must("node", "show", "n1", "-o", "json"), &n))
			require.Equal(t, "ready", n.State)
		})
	}
}

// mostResident is the most memory that a process has had, in MiB.
func mostResident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			t.Logf("the agent had %d MiB at the most", kib>>10)
			return kib >> 10
		}
	}
	t.Fatal("the process has no VmHWM")
	return 0
}
