// Package devstacktest gives tests a stack of their own. The TestMain of a
// package that uses it calls devstack.MaybeRunNATS first.
package devstacktest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/devstack"
	"tidewait/migrations"
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

// Main runs the tests of a package beside services that all of them share, of
// which use gets the addresses, and returns the code to exit with.
func Main(m *testing.M, use func(*devstack.Stack), services ...devstack.Name) int {
	code, err := runBeside(m, use, services)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func runBeside(m *testing.M, use func(*devstack.Stack), services []devstack.Name) (code int, err error) {
	dir, err := reachableDir()
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	stack, err := devstack.Start(context.Background(), devstack.Options{Dir: dir, Services: services})
	if err != nil {
		return 0, fmt.Errorf("cannot start the stack: %w", err)
	}
	use(stack)
	code = m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if err := stack.Stop(ctx); err != nil {
		return 0, fmt.Errorf("cannot stop the stack: %w", err)
	}
	return code, nil
}

const stopTime = 30 * time.Second

// Database makes a migrated database for one test in the Postgres at url, and
// returns its address.
func Database(t testing.TB, url string) string {
	t.Helper()
	database, err := newDatabase(context.Background(), url)
	if err != nil {
		t.Fatalf("cannot make a database for the test: %v", err)
	}
	return database
}

var databases atomic.Int64

func newDatabase(ctx context.Context, url string) (string, error) {
	admin, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer admin.Close(ctx)
	name := fmt.Sprintf("t%d", databases.Add(1))
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	c := admin.Config()
	database := fmt.Sprintf("postgres://%s@%s:%d/%s", c.User, c.Host, c.Port, name)
	_, err = migrations.Apply(ctx, database)
	return database, err
}

// Stop stops a stack, which it must do cleanly.
func Stop(t testing.TB, stack *devstack.Stack) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if err := stack.Stop(ctx); err != nil {
		t.Errorf("cannot stop the stack: %v", err)
	}
}

// Dir makes a directory that the unprivileged user of Postgres can reach, which
// t.TempDir is not when tests run as root, and removes it when the test ends.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := reachableDir()
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

func reachableDir() (string, error) {
	dir, err := os.MkdirTemp("", "devstack")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
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
