package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"

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
	require.Equal(t, "- **command:** `make survey`\n"+
		"- **look now:** signal `nudge`, or `tidewait phase nudge port survey`\n- **end it:** signal `cancel`, or `tidewait phase cancel port survey`\n",
		phaseDetails("port", solo))
	require.Equal(t, "- **author:** `./author`\n- **critic:** `./critic`, in 3 machines, until the others are done\n"+
		"- **look now:** signal `nudge`, or `tidewait phase nudge port review`\n- **end it:** signal `cancel`, or `tidewait phase cancel port review`\n",
		phaseDetails("port", composed))
}
