package group

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
)

// collected returns whether a machine still gives its files.
func collected(t *testing.T, end End) bool {
	t.Helper()
	_, err := end.Machine.VM.Collect(t.Context(), nil, vm.Limits{Files: 100, Bytes: 1 << 20}, writerFunc(func([]byte) {}))
	return err == nil
}

// TestStoppedMachines has commands that are stopped end well, badly and not at
// all, for every reason there is.
func TestStoppedMachines(t *testing.T) {
	const (
		well  = `trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done`
		badly = `trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done`
		never = `trap '' TERM; echo ready; while :; do sleep 0.05; done`
		alone = "echo ready"
	)
	agents := func() []Agent {
		const decides = "until test -s go; do sleep 0.05; done; exit $(cat go)"
		return []Agent{designated(agent("decides", 0, decides)), agent("well", 0, well), agent("badly", 0, badly), agent("never", 0, never), agent("alone", 0, alone)}
	}
	on(t, labs(t)[0], func(t *testing.T, l lab) {
		run := func(t *testing.T, runID string, whenReady func(context.CancelCauseFunc)) (Result, error) {
			t.Helper()
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			g := create(t, l, runID, agents()...)
			out := newOutput()
			go func() {
				for _, name := range []string{"well", "badly", "never", "alone"} {
					out.awaitReady(t, name)
				}
				whenReady(stop)
			}()
			return g.Run(ctx, out.of)
		}
		for name, c := range map[string]struct {
			decide string // the exit code of the one that decides; empty: the run is cancelled
			cause  error
			alive  map[string]bool
		}{
			"success":   {decide: "0", alive: map[string]bool{"decides": true, "well": true, "badly": true, "alone": true}},
			"failure":   {decide: "3", alive: map[string]bool{"decides": true, "alone": true}},
			"cancelled": {cause: errors.New("enough"), alive: map[string]bool{"alone": true}},
			"kept":      {cause: &keeping{}, alive: map[string]bool{"decides": true, "well": true, "badly": true, "alone": true}},
		} {
			t.Run(name, func(t *testing.T) {
				result, err := run(t, name, func(stop context.CancelCauseFunc) {
					if c.decide == "" {
						stop(c.cause)
						return
					}
					l.put(t, name+"/decides", "go", c.decide)
				})
				ends := result.Ends
				if c.cause != nil {
					require.ErrorIs(t, err, c.cause)
				} else {
					require.NoError(t, err)
					require.Equal(t, c.decide != "0", result.Failed != nil)
				}
				for _, end := range ends {
					name := end.Machine.Name
					if name == "alone" && end.Stopped {
						continue // the rest was stopped a moment before it ended by itself
					}
					require.Equal(t, c.alive[name], end.Alive, name)
					require.Equal(t, c.alive[name], collected(t, end), name)
					require.Equal(t, name != "never", end.Ended, name)
					require.NoError(t, end.Err, name)
				}
				require.Equal(t, []bool{true, true, true}, []bool{ends[1].Stopped, ends[2].Stopped, ends[3].Stopped})
				require.Equal(t, []int{0, 4}, []int{ends[1].Exit.Code, ends[2].Exit.Code})
				require.Equal(t, c.alive["well"], ends[1].Succeeded())
				require.False(t, ends[2].Succeeded())
				require.False(t, ends[3].Succeeded())
				require.True(t, ends[4].Stopped || ends[4].Succeeded())
			})
		}
	})
}

// put writes a file into the workspace of a machine, which the backend process
// keeps on the host.
func (l lab) put(t *testing.T, runID, name, content string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(l.dir, "runs", strings.ReplaceAll(runID, "/", "_")+".*", "workspace"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, os.WriteFile(filepath.Join(found[0], name), []byte(content), 0o644)) //nolint:gosec // another user reads it
}

// keeping is a cause that wants what there is.
type keeping struct{}

func (*keeping) Error() string { return "enough for now" }

func (*keeping) Is(target error) bool { return target == vm.ErrKeep }

func TestMachinesKnowWhichTheyAre(t *testing.T) {
	on(t, labs(t)[0], func(t *testing.T, l lab) {
		own := agent("own", 0, "echo $TIDEWAIT_AGENT $TIDEWAIT_REPLICA")
		own.Command.Env = map[string]string{"TIDEWAIT_REPLICA": "mine"}
		g := create(t, l, "names", agent("author", 0, "echo $TIDEWAIT_AGENT $TIDEWAIT_REPLICA"), agent("critic", 2, "echo $TIDEWAIT_AGENT $TIDEWAIT_REPLICA"), own)
		out := newOutput()
		_, err := g.Run(t.Context(), out.of)
		require.NoError(t, err)
		for name, want := range map[string]string{"author": "author 1", "critic-1": "critic-1 1", "critic-2": "critic-2 2", "own": "own mine"} {
			require.Equal(t, []string{want}, out.get(name))
		}
	})
}

func TestErrorsNameTheMachine(t *testing.T) {
	m := Machine{}
	m.Name = "critic-2"
	failure := &vm.Failure{Code: vm.BootFailed, Message: "it did not answer"}
	err := naming(m, failure)
	require.EqualError(t, err, "machine critic-2: it did not answer")
	requireFailure(t, err, vm.BootFailed, "machine critic-2: it did not answer")
	var one *Error
	require.ErrorAs(t, fmt.Errorf("create: %w", err), &one)
	require.Equal(t, "critic-2", one.Machine.Name)
	require.Same(t, failure, one.Cause)
	other := errors.New("no space")
	require.ErrorIs(t, naming(m, other), other)
}
