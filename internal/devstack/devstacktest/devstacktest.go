// Package devstacktest gives tests a stack of their own. The TestMain of a
// package that uses it calls devstack.MaybeRunNATS first.
package devstacktest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"tidewait/internal/devstack"
)

// Start starts the services, all of them when none is named, and stops them and
// removes their state when the test ends.
func Start(t testing.TB, services ...devstack.Name) *devstack.Stack {
	t.Helper()
	stack, err := devstack.Start(t.Context(), devstack.Options{Dir: Dir(t), Services: services, TemporalCLI: temporalFor(t, services)})
	if err != nil {
		t.Fatalf("cannot start the stack: %v", err)
	}
	t.Cleanup(func() { Stop(t, stack) })
	return stack
}

// Stop stops a stack, which it must do cleanly.
func Stop(t testing.TB, stack *devstack.Stack) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := stack.Stop(ctx); err != nil {
		t.Errorf("cannot stop the stack: %v", err)
	}
}

// Dir makes a directory that the unprivileged user of Postgres can reach, which
// t.TempDir is not when tests run as root, and removes it when the test ends.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devstack")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatalf("cannot make a directory for the stack: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("cannot remove the stack's directory: %v", err)
		}
	})
	return dir
}

// TemporalCLI finds the temporal command: in the bin directory of the
// repository, where TIDEWAIT_DEV_TEMPORAL_CLI says, or on PATH.
func TemporalCLI(t testing.TB) string {
	t.Helper()
	if built := inRepository(filepath.Join("bin", "temporal")); built != "" {
		return built
	}
	if named := os.Getenv("TIDEWAIT_DEV_TEMPORAL_CLI"); named != "" {
		return named
	}
	found, err := exec.LookPath("temporal")
	if err != nil {
		t.Fatal("no temporal command in the repository's bin directory, in TIDEWAIT_DEV_TEMPORAL_CLI or on PATH: run make deps")
	}
	return found
}

func temporalFor(t testing.TB, services []devstack.Name) string {
	t.Helper()
	for _, name := range services {
		if name == devstack.Temporal {
			return TemporalCLI(t)
		}
	}
	if len(services) > 0 {
		return ""
	}
	return TemporalCLI(t)
}

// inRepository finds a file by its path from the directory with go.mod.
func inRepository(path string) string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			file := filepath.Join(dir, path)
			if _, err := os.Stat(file); err == nil {
				return file
			}
			return ""
		}
		dir = filepath.Dir(dir)
	}
	return ""
}
