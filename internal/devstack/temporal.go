package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	temporallog "go.temporal.io/sdk/log"
)

// temporalSettings are dynamic configuration, each with why it is not as usual.
var temporalSettings = []string{
	"frontend.namespaceRPS.visibility=1000", // the usual ten a second starve a command line beside a Web UI
	"frontend.namespaceBurstRatio.visibility=2.0",
	"frontend.namespaceRPS=20000", // benchmarks measure the engine, not the limit
	"frontend.rps=20000",
	"frontend.namespaceCount=5000", // long polls of many queues at once
}

func findTemporal(path string) (string, error) {
	if path != "" {
		if isExecutable(path) {
			return path, nil
		}
		return "", fmt.Errorf("cannot run %s, which dev.temporal_cli names: it is missing or no executable file", path)
	}
	beside := "?"
	if self, err := os.Executable(); err == nil {
		beside = filepath.Join(filepath.Dir(self), "temporal")
		if isExecutable(beside) {
			return beside, nil
		}
	}
	if found, err := exec.LookPath("temporal"); err == nil {
		return filepath.Abs(found)
	}
	return "", fmt.Errorf("cannot find the Temporal CLI (looked for %s and on PATH): run make deps, "+
		"or go install github.com/temporalio/cli/cmd/temporal@v1.5.1, or name it with dev.temporal_cli", beside)
}

func (s *Stack) startTemporal(ctx context.Context, o Options, program string, ports Ports) error {
	state := filepath.Join(o.Dir, "temporal")
	s.TemporalAddress = loopback(ports.Temporal)
	s.MetricsURL = "http://" + loopback(ports.TemporalMetrics) + "/metrics"
	s.CodecAddress = loopback(ports.Codec)
	codec := ""
	if o.Codec {
		codec = "http://" + s.CodecAddress
	}
	if o.UI {
		s.UIURL = "http://" + loopback(ports.TemporalUI)
	}
	s.Temporal = &Service{
		name:         Temporal,
		port:         ports.Temporal,
		prepare:      func(context.Context) error { return makePrivateDir(state) },
		command:      func() *exec.Cmd { return temporalServer(program, state, ports, o, codec) },
		ready:        func(ctx context.Context) error { return temporalReady(ctx, s.TemporalAddress, s.UIURL) },
		whenOrphaned: syscall.SIGKILL,
	}
	return s.launch(ctx, o, s.Temporal)
}

// temporalServer keeps its state in a SQLite file whose write-ahead log makes
// commits ten times as fast as the usual mode, and survives a crash as well.
func temporalServer(program, state string, ports Ports, o Options, codec string) *exec.Cmd {
	args := []string{
		"server", "start-dev",
		"--disable-config-file", "--disable-config-env",
		"--log-level", "error",
		"--ip", "127.0.0.1",
		"--port", strconv.Itoa(ports.Temporal),
		"--metrics-port", strconv.Itoa(ports.TemporalMetrics),
		"--http-port", strconv.Itoa(ports.TemporalHTTP),
		"--namespace", Namespace,
		"--db-filename", filepath.Join(state, "temporal.db"),
		"--sqlite-pragma", "journal_mode=wal",
		"--sqlite-pragma", "synchronous=normal",
	}
	if o.UI {
		args = append(args, "--ui-port", strconv.Itoa(ports.TemporalUI))
	} else {
		args = append(args, "--headless")
	}
	if o.UI && codec != "" {
		args = append(args, "--ui-codec-endpoint", codec)
	}
	for _, setting := range slices.Concat(temporalSettings, o.TemporalSettings) {
		args = append(args, "--dynamic-config-value", setting)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = []string{ // the user's own settings stay out
		"PATH=" + os.Getenv("PATH"), "HOME=" + state,
		"GOGC=400", // a seventh of its processor time is collecting garbage otherwise
	}
	return cmd
}

// temporalReady asks the frontend for the namespace and the history service,
// behind it, for a workflow that cannot be there.
func temporalReady(ctx context.Context, address, uiURL string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := client.DialContext(ctx, client.Options{
		HostPort: address, Namespace: Namespace,
		Logger: temporallog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	var notFound *serviceerror.NotFound
	if _, err := c.DescribeWorkflow(ctx, "devstack-is-ready", ""); !errors.As(err, &notFound) {
		return fmt.Errorf("the history service is not ready: %w", err)
	}
	if uiURL == "" {
		return nil
	}
	return httpReady(ctx, uiURL)
}

func httpReady(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}
