package mission_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/mission"
)

const examples = "../../examples/missions"

func example(t *testing.T, name string) mission.Mission {
	t.Helper()
	path := filepath.Join(examples, name)
	src, err := os.ReadFile(path)
	require.NoError(t, err)
	m, err := mission.Parse(path, src)
	require.NoError(t, err)
	return m
}

func TestEveryExampleIsValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	require.NoError(t, err)
	phases := map[string][]string{}
	for _, file := range files {
		m := example(t, filepath.Base(file))
		require.Equal(t, filepath.Join(examples, "sample-repo"), m.Spec.Workspace.Resolve(examples).Path)
		for _, phase := range m.Spec.Phases {
			phases[m.Spec.Backend+" "+m.Name] = append(phases[m.Spec.Backend+" "+m.Name], phase.Name)
		}
	}
	require.Equal(t, map[string][]string{
		"microvm hello":      {"greet"},
		"microvm survey":     {"survey", "extremes", "report"},
		"microvm big":        {"hold"},
		"microvm review":     {"report", "publish"},
		"microvm impossible": {"giant"},
		"process process":    {"count"},
		"microvm composed":   {"review"}, // run in internal/e2e, since its machines need each other
		"process signed":     {"sign"},
	}, phases)
}

// TestExamplesRun runs the commands of the examples one after another in a copy
// of their workspace, so that what a guest is told to do works.
func TestExamplesRun(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"hello.yaml":   {"greeting.txt": "hello from Linux "},
		"process.yaml": {"count.txt": "288\n"},
		"secrets.yaml": {"signature.txt": "3c454a9147781b6afd8a16eba64ef4c49c9c2adefe6192f81b4ad855949e1399  -\n"},
		"big.yaml":     {"held.txt": "held for 0 seconds\n"},
		"review.yaml":  {"public/survey.txt": "files: 2\nreadings: 288\nstations: north-pier south-lock\n"},
		"survey.yaml": {
			"out/survey.txt":   "files: 2\nreadings: 288\nstations: north-pier south-lock\n",
			"out/extremes.csv": "north-pier,2026-03-01,",
			"out/report.md":    "# Tides\n\n- files: 2\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(examples, "sample-repo"))))
			for _, phase := range example(t, name).Spec.Phases {
				cmd := exec.CommandContext(t.Context(), phase.Run[0], phase.Run[1:]...)
				cmd.Dir = dir
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
				for key, value := range phase.Env {
					if key == "HOLD_SECONDS" {
						value = "0"
					}
					cmd.Env = append(cmd.Env, key+"="+value)
				}
				for _, secret := range phase.Secrets {
					cmd.Env = append(cmd.Env, secret.Name+"=a sample value")
				}
				slices.Sort(cmd.Env)
				output, err := cmd.CombinedOutput()
				require.NoError(t, err, string(output))
			}
			for file, prefix := range want {
				content, err := os.ReadFile(filepath.Join(dir, file))
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(string(content), prefix), string(content))
			}
		})
	}
}
