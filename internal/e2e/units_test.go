package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	settings "tidewait/config"
)

// TestUnitsFitTheWorker: what units and images set are settings that a worker takes,
// and a node's unit does not ask for what breaks a node.
func TestUnitsFitTheWorker(t *testing.T) {
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	require.NoError(t, err)
	require.Len(t, units, 3)
	variable := regexp.MustCompile(`TIDEWAIT_[A-Z_]+=\S+`)
	for _, path := range append(units, "../../deploy/container/Containerfile") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var env []string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "Environment=") || strings.HasPrefix(line, "ENV ") {
				env = append(env, variable.FindAllString(line, -1)...)
			}
		}
		require.Contains(t, env, "TIDEWAIT_DATA_DIR=/var/lib/tidewait", path)
		_, err = settings.Load(settings.Options{Env: withoutFile(env)})
		require.NoError(t, err, path)
	}
	for role, want := range map[string][]string{
		"engine":  {"ExecStart=/usr/local/bin/tidewait-worker run --roles engine", "User=tidewait", "CapabilityBoundingSet="},
		"gateway": {"ExecStart=/usr/local/bin/tidewait-worker run --roles gateway", "User=tidewait", "CapabilityBoundingSet="},
		"node":    {"ExecStart=/usr/local/bin/tidewait-worker run --roles node", "KillMode=process", "Delegate=yes"},
	} {
		require.Subset(t, options(t, role), want, role)
	}
	for _, o := range options(t, "node") {
		key, value, _ := strings.Cut(o, "=")
		require.NotContains(t, []string{
			"PrivateTmp", "PrivateDevices", "PrivateUsers", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset",
			"ProtectControlGroups", "ProtectHostname", "RestrictNamespaces", "MemoryDenyWriteExecute", "RestrictSUIDSGID", "User", "DynamicUser",
		}, key, "%s=%s", key, value)
	}
}

// withoutFile leaves out the settings file, which is not on this machine.
func withoutFile(env []string) (rest []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, "TIDEWAIT_CONFIG=") {
			rest = append(rest, v)
		}
	}
	return rest
}

// options are the lines of a unit that set something.
func options(t *testing.T, role string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/systemd/tidewait-" + role + ".service")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "[") {
			lines = append(lines, line)
		}
	}
	return lines
}
