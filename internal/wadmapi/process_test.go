package wadmapi_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/store"
	"tidewait/internal/wadmapi"
)

// Environment of a process of this test's program that is to be a server of the
// API, and to live until it is killed.
const (
	envNATS     = "WADMAPI_TEST_NATS"
	envPostgres = "WADMAPI_TEST_POSTGRES"
)

func maybeServe() {
	if os.Getenv(envNATS) == "" {
		return
	}
	err := serveForever()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func serveForever() error {
	ctx := context.Background()
	s, err := store.Open(ctx, os.Getenv(envPostgres), 20, rules)
	if err != nil {
		return err
	}
	conn, err := nats.Connect(os.Getenv(envNATS))
	if err != nil {
		return err
	}
	server := &wadmapi.Server{Store: s, NATS: conn, Settings: defaults, Log: quiet()}
	return server.Serve(ctx, func() { fmt.Println("ready") })
}

// serverProcess is a server of the API in a process of its own. It is killed at
// the end of the test, if not before.
func serverProcess(t *testing.T, natsURL, postgresURL string) (kill func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envNATS+"="+natsURL, envPostgres+"="+postgresURL)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	ready := make([]byte, len("ready\n"))
	_, err = out.Read(ready)
	require.NoError(t, err)
	require.Equal(t, "ready\n", string(ready))
	return kill
}
