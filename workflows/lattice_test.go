package workflows_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/workflows"
)

// TestALatticeThatIsNeededInTheLastMomentIsKept: a deployment that finds the
// observation about to end has it go on; one that came before it began is seen
// by it anyway.
func TestALatticeThatIsNeededInTheLastMomentIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		signalledIn []int // observations, the first is 1
		failing     int   // how many are tried again because an engine ended
		observed    int
	}{
		"not needed":                   {nil, 0, 1},
		"an engine that stops":         {nil, 2, 3},
		"needed as it ends":            {[]int{1}, 0, 2},
		"needed twice":                 {[]int{1, 2}, 0, 3},
		"needed while an engine stops": {[]int{1}, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			observed := 0
			e.observe = func(context.Context, workflows.LatticeInput) error {
				observed++
				for _, n := range c.signalledIn {
					if n == observed {
						e.SignalWorkflow(api.SignalNeeded, nil)
					}
				}
				if observed <= c.failing {
					return errors.New("this engine stops")
				}
				return nil
			}
			e.Register(e)
			e.ExecuteWorkflow(api.LatticeWorkflow, workflows.LatticeInput{Account: "default", Lattice: "default"})
			require.True(t, e.IsWorkflowCompleted())
			require.NoError(t, e.GetWorkflowError())
			require.Equal(t, c.observed, observed)
		})
	}
}
