package workflows

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tidewait/internal/ledger"
	"tidewait/internal/vm"
)

func TestWhatAPhaseSaysInTheWebUI(t *testing.T) {
	solo := PhaseCommand{Name: "survey", Command: vm.Command{Argv: []string{"make", "survey"}}, Machine: vm.Spec{CPUMilli: 1500, MemoryMiB: 512}}
	composed := PhaseCommand{Name: "review", Agents: []AgentCommand{
		{Name: "author", Replicas: 1, Designated: true, Command: vm.Command{Argv: []string{"./author"}}, Machine: vm.Spec{CPUMilli: 1000, MemoryMiB: 512}},
		{Name: "critic", Replicas: 3, Command: vm.Command{Argv: []string{"./critic"}}, Machine: vm.Spec{CPUMilli: 500, MemoryMiB: 256}},
	}}
	require.Equal(t, "port · phase 1 survey · 1.5 CPU / 512 MiB", phaseSummary("port", 1, solo))
	require.Equal(t, "port · phase 2 review · 4 machines · 2.5 CPU / 1280 MiB", phaseSummary("port", 2, composed))
	launched := &LaunchResult{
		Launched: ledger.Launched{GatewayID: "gw-1"},
		Mission:  LaunchedMission{Name: "port", Actor: "ann@desk", Pool: "microvm", Turn: time.Hour, MaxWait: 2 * time.Hour, Priority: 50},
		Fleet:    Fleet{AttemptBackoff: 10 * time.Second},
	}
	require.Equal(t, `- **command:** `+"`make survey`"+`
- **needs:** 1.5 CPU, 512 MiB of memory and 0 MiB of disk on backend microvm
- **bounds:** a run's turn is 1h; a wait for capacity fails after 2h
- **priority:** 50
- **launched by:** ann@desk, on gateway gw-1

**you can**

- look now: `+"`tidewait phase nudge port survey`, or signal `nudge` with input `{\"actor\": \"you\"}`"+`
- end it: `+"`tidewait phase cancel port survey --reason WHY`, or signal `cancel` with input `{\"actor\": \"you\", \"reason\": \"why\"}`"+`

---
`, phaseDetails(launched, solo))
	composed.Attempts, composed.Secrets, composed.Requires = 3, []string{"API_TOKEN"}, []string{"arch=amd64", "zone=eu"}
	composed.Hold = &ledger.Hold{Reason: "somebody reads *all* of it", MaxWait: 90 * time.Minute}
	require.Equal(t, `- **author:** `+"`./author`"+`
- **critic:** `+"`./critic`"+`, in 3 machines, until the others are done
- **needs:** 2.5 CPU, 1280 MiB of memory and 0 MiB of disk on backend microvm, of a node with arch=amd64, zone=eu
- **bounds:** a run's turn is 1h; a wait for capacity fails after 2h
- **priority:** 50
- **attempts:** 3, with pauses from 10s on
- **secrets:** API_TOKEN
- **launched by:** ann@desk, on gateway gw-1
- **held:** until somebody releases it, for 1h30m at most: somebody reads \*all\* of it

**you can**

- look now: `+"`tidewait phase nudge port review`, or signal `nudge` with input `{\"actor\": \"you\"}`"+`
- release it: `+"`tidewait phase release port review --note WHAT`, or signal `release` with input `{\"actor\": \"you\", \"note\": \"what you looked at\"}`"+`
- end it: `+"`tidewait phase cancel port review --reason WHY`, or signal `cancel` with input `{\"actor\": \"you\", \"reason\": \"why\"}`"+`

---
`, phaseDetails(launched, composed))
}

// TestAHeadlineStaysTrueAndShort: what lists show of a wait names no number that
// the next look may change, and is no longer than the server takes.
func TestAHeadlineStaysTrueAndShort(t *testing.T) {
	const needs = "needs 0.5 CPUs, 256 MiB of memory and 256 MiB of disk (+160 MiB of memory overhead) on backend microvm"
	look := func(code, rest string) string {
		return wait{kind: "capacity", code: code, reason: needs + "; " + rest}.headline()
	}
	require.Equal(t, "every node that could run it is full, and lacks memory most; it "+needs, look("capacity_memory", "node-a is short by 244 MiB of memory; 1st in line"))
	require.Equal(t, look("capacity_memory", "node-a is short by 244 MiB of memory; 1st in line"), look("capacity_memory", "node-b is short by 1 MiB of memory; 3rd in line"))
	require.Equal(t, "the placer does not answer", wait{kind: "capacity", code: "placer_unavailable", reason: "the placer does not answer: timeout"}.headline())
	require.Equal(t, "somebody's own words, a: b", wait{kind: "backoff", code: "command_failed", reason: "somebody's own\nwords,  a: b"}.headline())

	require.Equal(t, "no such image", wait{kind: "backoff", code: "command_failed", reason: "no such image (attempt 3, next attempt 2026-11-30T14:05:15Z)"}.headline())

	long := wait{kind: "backoff", code: "command_failed", reason: strings.Repeat("ü", 300)}.headline()
	require.Equal(t, strings.Repeat("ü", 100)+"…", long)
	for code, words := range headlines {
		longest := wait{kind: "capacity", code: string(code), reason: "needs " + strings.Repeat("x", 300) + "; more"}.headline()
		require.Contains(t, longest, words)
		require.LessOrEqual(t, utf8.RuneCountInString(longest), 255)
	}
}

func TestLengthsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		2 * time.Hour: "2h", 90 * time.Minute: "1h30m", 109 * time.Second: "1m49s", 3 * time.Minute: "3m",
		time.Hour + 5*time.Second: "1h0m5s", 1600 * time.Millisecond: "2s", 0: "0s",
	} {
		require.Equal(t, want, length(d))
	}
}
