package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/workflows"
)

// TestARunThatIsStoppedWhileItCollects is complete when its work is wanted, and
// ends at once when it is not.
func TestARunThatIsStoppedWhileItCollects(t *testing.T) {
	for name, keep := range map[string]bool{"kept": true, "not kept": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			in := workflows.ExecuteRunInput{
				Mission: "port", Launch: 1, Phase: "work", Backend: "process", Input: b.input, Turn: time.Minute, Node: "n1",
				Machine: vm.Spec{RunID: "r1", CPUMilli: 500, MemoryMiB: 128, DiskMiB: 64},
				Command: vm.Command{Argv: []string{"sh", "-c", "echo made > made.txt"}},
			}

			res, err := b.Execute(t.Context(), in, func(step string) {
				if step == "collect" {
					require.NoError(t, b.StopRun("r1", "cancelled by ann", keep))
				}
			})

			require.NoError(t, err)
			if keep {
				require.Equal(t, []string{"", ""}, []string{res.FailureCode, res.Failure})
				require.Equal(t, []string{"made.txt"}, b.files(t, &res.Results))
				require.False(t, res.Partial, "it is all of it")
			} else {
				require.Equal(t, []string{"cancelled", "the run was stopped in its step collect"}, []string{res.FailureCode, res.Failure})
				require.Empty(t, res.Results)
			}
			b.nothingLeft(t)
		})
	}
}
