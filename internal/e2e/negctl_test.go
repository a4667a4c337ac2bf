package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/devstack/devstacktest"
)

// negctl runs `tidewait negctl` and returns its exit code and what it printed.
func negctl(t *testing.T, args ...string) (code int, stdout, stderr []byte) {
	t.Helper()
	stacks.take(t)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "tidewait"), append([]string{"negctl", "-o", "json", "--source", root}, args...)...)
	cmd.Env = append(os.Environ(), "TIDEWAIT_DEV_TEMPORAL_CLI="+devstacktest.TemporalCLI(t))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err = cmd.Run()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.Bytes(), errs.Bytes()
}

// control is what a run says of one negative control.
type control struct {
	ID       string   `json:"id"`
	OK       bool     `json:"ok"`
	Observed []string `json:"observed"`
	Problem  string   `json:"problem"`
	NotRun   string   `json:"notRun"`
}

// TestNegativeControls runs all of them: each failed in its own way, and what it
// saw on the way is what it must have seen.
func TestNegativeControls(t *testing.T) {
	long(t, 3*time.Minute)
	code, out, errs := negctl(t)
	var report struct {
		OK       bool      `json:"ok"`
		Controls []control `json:"controls"`
	}
	require.NoErrorf(t, json.Unmarshal(out, &report), "%s", errs)
	for _, c := range report.Controls {
		require.Empty(t, c.Problem, c.ID)
		require.Empty(t, c.NotRun, "%s: machines are real here", c.ID)
		require.Equal(t, observed[c.ID], c.Observed, c.ID)
		require.True(t, c.OK, c.ID)
	}
	require.Len(t, report.Controls, len(observed))
	require.True(t, report.OK)
	require.Zero(t, code)
}

// TestSabotageIsNoticed takes safeties out: exactly the controls that guard them
// fail. All of them with all controls take a quarter of an hour: make negctl.
func TestSabotageIsNoticed(t *testing.T) {
	long(t, time.Minute)
	for name, guard := range map[string]string{"drop-check": "9", "retry-without-second-look": "3-busy"} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := negctl(t, "--sabotage", name, "--only", "3-busy,9")
			var reports []struct {
				OK       bool      `json:"ok"`
				Noticed  []string  `json:"noticed"`
				Controls []control `json:"controls"`
			}
			require.NoErrorf(t, json.Unmarshal(out, &reports), "%s", errs)
			require.Len(t, reports, 1)
			require.Equal(t, []string{guard}, reports[0].Noticed)
			require.Len(t, reports[0].Controls, 2)
			require.True(t, reports[0].OK)
			require.Zero(t, code)
		})
	}
}
