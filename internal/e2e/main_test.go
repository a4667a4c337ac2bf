// Package e2e runs the product's own programs on a real Temporal, Postgres,
// NATS and QEMU, as a person would.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"tidewait/internal/devstack"
)

// bin holds the programs under test, built once.
var bin string

func TestMain(m *testing.M) {
	devstack.MaybeRunNATS()
	takeFaultSettings()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if err := parallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "e2e-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // machines' unprivileged user executes the guest agent
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for name, pkg := range map[string]string{
		"tidewait": "tidewait/starter", "tidewait-worker": "tidewait/worker", "tidewait-guest": "tidewait/internal/vm/guestagent",
	} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg)
		if name == "tidewait-guest" {
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %s\n", pkg, out)
			return 1
		}
	}
	return m.Run()
}
