package agent_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/agent"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// unfed is a backend whose first machines take nothing in.
type unfed struct {
	vm.Backend
	left    int // of them
	created int
}

func (d *unfed) Create(ctx context.Context, s vm.Spec) (vm.VM, error) {
	m, err := d.Backend.Create(ctx, s)
	d.created++
	if err == nil && s.RunID == "r1" && d.left > 0 {
		d.left--
		return &unfedMachine{m}, nil
	}
	return m, err
}

type unfedMachine struct{ vm.VM }

func (*unfedMachine) Inject(ctx context.Context, _ io.Reader) (vm.Manifest, error) {
	<-ctx.Done()
	return vm.Manifest{}, context.Cause(ctx)
}

// TestAMachineThatTakesNothingInIsReplaced: once; the second one is the run's.
func TestAMachineThatTakesNothingInIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		deaf int
		want []string
	}{
		"one": {1, []string{"", ""}},
		"two": {2, []string{"step_timeout", "putting the workspace into the machine took longer than 4s"}},
	} {
		t.Run(name, func(t *testing.T) {
			backend := &unfed{left: c.deaf}
			b := newBenchWith(t, func(o *agent.Options) {
				backend.Backend = o.Backends[0]
				o.Backends, o.StepTimeout = []vm.Backend{backend}, 4*time.Second
			})
			backend.created = 0 // by the probe
			var steps []string

			res, err := b.Execute(t.Context(), workflows.ExecuteRunInput{
				Mission: "port", Launch: 1, Phase: "work", Backend: "process", Input: b.input, Turn: time.Minute, Node: "n1",
				Machine: vm.Spec{RunID: "r1", CPUMilli: 500, MemoryMiB: 128, DiskMiB: 64},
				Command: vm.Command{Argv: []string{"sh", "-c", "cat README > made.txt"}},
			}, func(step string) { steps = append(steps, step) })

			require.NoError(t, err)
			require.Equal(t, c.want, []string{res.FailureCode, res.Failure})
			require.Equal(t, 2, backend.created)
			require.Equal(t, []string{"create", "inject", "create", "inject"}, steps[:4])
			b.nothingLeft(t)
		})
	}
}
