package agent_test

import (
	"context"
	"io"
	"sync"
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
	run string // whose machines they are

	mu      sync.Mutex
	left    int // of them
	created int
}

func (d *unfed) Create(ctx context.Context, s vm.Spec) (vm.VM, error) {
	m, err := d.Backend.Create(ctx, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.created++
	if err == nil && s.RunID == d.run && d.left > 0 {
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
			backend := &unfed{run: "r1", left: c.deaf}
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

// TestAMachineOfATeamThatTakesNothingInIsReplaced, while the others keep theirs. The
// new one is on the same network.
func TestAMachineOfATeamThatTakesNothingInIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		deaf int
		want []string
	}{
		"one": {1, []string{"", "", ""}},
		"two": {2, []string{"step_timeout", "machine critic: putting the workspace into the machine took longer than 4s", "critic"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := &unfed{run: "r1/critic", left: c.deaf}
			b := newBenchWith(t, func(o *agent.Options) {
				backend.Backend = o.Backends[0]
				o.Backends, o.StepTimeout = []vm.Backend{backend}, 4*time.Second
			})
			backend.created = 0 // by the probe

			res, err := b.Execute(t.Context(), b.team("r1",
				deciding(member("author", 1, "until busybox wget -q -O heard.txt http://critic/README 2>/dev/null; do sleep 0.05; done")),
				member("critic", 1, "trap 'exit 0' TERM; busybox httpd -p 80; while :; do sleep 0.05; done")), nil)

			require.NoError(t, err)
			require.Equal(t, c.want, []string{res.FailureCode, res.Failure, res.Failed})
			require.Equal(t, 3, backend.created)
			if c.deaf == 1 {
				require.Equal(t, []string{"heard.txt"}, b.files(t, res.Agents[0].Results))
			}
			b.nothingLeft(t)
		})
	}
}
