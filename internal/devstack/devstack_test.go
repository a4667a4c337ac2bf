package devstack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
)

// holdVariable makes the test binary start a stack in a directory and hold it;
// freezeVariable, that it freezes Postgres first.
const (
	holdVariable   = "DEVSTACK_TEST_HOLD"
	freezeVariable = "DEVSTACK_TEST_FREEZE"
)

func TestMain(m *testing.M) {
	devstack.MaybeRunNATS()
	if dir := os.Getenv(holdVariable); dir != "" {
		hold(dir)
	}
	os.Exit(m.Run())
}

// hold starts Postgres and NATS, prints their pids and waits to be killed.
func hold(dir string) {
	s, err := devstack.Start(context.Background(), devstack.Options{Dir: dir, Services: []devstack.Name{devstack.Postgres, devstack.NATS}})
	if err == nil && os.Getenv(freezeVariable) != "" {
		err = s.Postgres.Freeze()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Postgres.PID(), s.NATS.PID())
	select {}
}

func start(t *testing.T, o devstack.Options) *devstack.Stack {
	t.Helper()
	s, err := devstack.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { devstacktest.Stop(t, s) })
	return s
}

// mark is state that a test leaves in each service and finds again.
const mark = "tide-1"

func leaveMarks(t *testing.T, s *devstack.Stack) {
	t.Helper()
	ctx := t.Context()

	conn := connectPostgres(t, s)
	_, err := conn.Exec(ctx, "create table marks (name text)")
	require.NoError(t, err)
	_, err = conn.Exec(ctx, "insert into marks values ($1)", mark)
	require.NoError(t, err)

	js := connectJetStream(t, s)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "MARKS", Subjects: []string{"marks"}})
	require.NoError(t, err)
	_, err = js.Publish(ctx, "marks", []byte(mark))
	require.NoError(t, err)

	_, err = connectTemporal(t, s).ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: mark, TaskQueue: "nobody"}, "Mark")
	require.NoError(t, err)
}

func requirePostgresMark(t *testing.T, s *devstack.Stack) {
	t.Helper()
	var name string
	require.NoError(t, connectPostgres(t, s).QueryRow(t.Context(), "select name from marks").Scan(&name))
	require.Equal(t, mark, name)
}

func requireNATSMark(t *testing.T, s *devstack.Stack) {
	t.Helper()
	stream, err := connectJetStream(t, s).Stream(t.Context(), "MARKS")
	require.NoError(t, err)
	message, err := stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, mark, string(message.Data))
}

func requireTemporalMark(t *testing.T, s *devstack.Stack) {
	t.Helper()
	described, err := connectTemporal(t, s).DescribeWorkflow(t.Context(), mark, "")
	require.NoError(t, err)
	require.Equal(t, "Running", described.Status.String())
}

func connectPostgres(t *testing.T, s *devstack.Stack) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.PostgresURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func connectNATS(t *testing.T, s *devstack.Stack) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(s.NATSURL)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func connectJetStream(t *testing.T, s *devstack.Stack) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(connectNATS(t, s))
	require.NoError(t, err)
	return js
}

func connectTemporal(t *testing.T, s *devstack.Stack) client.Client {
	t.Helper()
	c, err := client.DialContext(t.Context(), client.Options{HostPort: s.TemporalAddress, Namespace: devstack.Namespace})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestStateAndPortsSurviveStopAndStart(t *testing.T) {
	t.Parallel()
	var said []string
	o := devstack.Options{
		Dir: devstacktest.Dir(t), TemporalCLI: devstacktest.TemporalCLI(t), UI: true,
		Progress: func(line string) { said = append(said, line) },
	}
	first := start(t, o)
	require.Len(t, said, 4)
	require.Equal(t, "Creating a Postgres cluster in "+filepath.Join(o.Dir, "postgres"), said[0])
	require.Regexp(t, `^Postgres is ready at 127\.0\.0\.1:\d+ after [0-9.ms]+$`, said[1])
	require.Regexp(t, `^NATS is ready at 127\.0\.0\.1:\d+ after [0-9.ms]+$`, said[2])
	require.Regexp(t, `^Temporal is ready at 127\.0\.0\.1:\d+ after [0-9.ms]+$`, said[3])
	require.Contains(t, get(t, first.UIURL), "<!doctype html>")
	require.Contains(t, get(t, first.MetricsURL), "persistence_requests")
	require.Equal(t, []string{
		"TIDEWAIT_POSTGRES_URL=" + first.PostgresURL,
		"TIDEWAIT_NATS_URL=" + first.NATSURL,
		"TIDEWAIT_TEMPORAL_ADDRESS=" + first.TemporalAddress,
		"TIDEWAIT_TEMPORAL_NAMESPACE=default",
	}, first.Env())
	leaveMarks(t, first)

	pids := []int{first.Postgres.PID(), first.NATS.PID(), first.Temporal.PID()}
	require.NoError(t, first.Stop(t.Context()))
	require.NoError(t, first.Stop(t.Context()), "stopping again")
	for _, pid := range pids {
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	}
	require.Zero(t, first.Postgres.PID())

	second := start(t, o)
	require.Equal(t, first.PostgresURL, second.PostgresURL)
	require.Equal(t, first.NATSURL, second.NATSURL)
	require.Equal(t, first.TemporalAddress, second.TemporalAddress)
	require.Equal(t, first.UIURL, second.UIURL)
	requirePostgresMark(t, second)
	requireNATSMark(t, second)
	requireTemporalMark(t, second)
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

func TestEveryServiceSurvivesBeingKilled(t *testing.T) {
	t.Parallel()
	s := devstacktest.Start(t)
	leaveMarks(t, s)
	for _, c := range []struct {
		service *devstack.Service
		found   func(*testing.T, *devstack.Stack)
	}{
		{s.Postgres, requirePostgresMark},
		{s.NATS, requireNATSMark},
		{s.Temporal, requireTemporalMark},
	} {
		pid := c.service.PID()
		require.NotZero(t, pid)
		require.NoError(t, c.service.Kill())
		require.Zero(t, c.service.PID())
		_, err := net.Dial("tcp", c.service.Address())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NoError(t, c.service.Kill(), "killing again")

		require.NoError(t, c.service.Start(t.Context()))
		require.NotEqual(t, pid, c.service.PID())
		c.found(t, s)
		again := c.service.PID()
		require.NoError(t, c.service.Start(t.Context()), "starting again")
		require.Equal(t, again, c.service.PID())
	}
	select {
	case err := <-s.Failed():
		t.Errorf("a kill that was asked for was told as a failure: %v", err)
	default:
	}
}

func TestFrozenServices(t *testing.T) {
	t.Parallel()
	s := devstacktest.Start(t, devstack.Postgres, devstack.NATS)
	require.Nil(t, s.Temporal)
	conn, bus := connectPostgres(t, s), connectNATS(t, s)

	require.NoError(t, s.NATS.Freeze())
	require.ErrorIs(t, bus.FlushTimeout(100*time.Millisecond), nats.ErrTimeout)
	require.NoError(t, s.NATS.Thaw())
	require.NoError(t, bus.FlushTimeout(10*time.Second))

	require.NoError(t, s.Postgres.Freeze())
	answered := make(chan error, 1)
	go func() { answered <- conn.Ping(context.Background()) }()
	select {
	case err := <-answered:
		t.Fatalf("a frozen Postgres answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, s.Postgres.Thaw())
	require.NoError(t, <-answered)

	require.NoError(t, s.Postgres.Freeze())
	require.NoError(t, s.Postgres.Stop(t.Context()), "a frozen service can be stopped")
	require.NoError(t, s.Postgres.Start(t.Context()))
	require.NoError(t, s.Postgres.Freeze())
	require.NoError(t, s.Postgres.Kill(), "a frozen service can be killed")
	require.EqualError(t, s.Postgres.Freeze(), "Postgres does not run")
}

func TestAServiceThatEndsByItselfIsTold(t *testing.T) {
	t.Parallel()
	s := devstacktest.Start(t, devstack.NATS)
	require.NoError(t, syscall.Kill(s.NATS.PID(), syscall.SIGKILL))
	require.EqualError(t, <-s.Failed(), "NATS ended by itself: signal: killed; its log is "+s.NATS.LogPath())
}

func TestTwoStacksAtOnce(t *testing.T) {
	t.Parallel()
	one, two := devstacktest.Start(t), devstacktest.Start(t)
	leaveMarks(t, one)
	leaveMarks(t, two)
	require.NoError(t, one.Stop(t.Context()))
	requirePostgresMark(t, two)
	requireNATSMark(t, two)
	requireTemporalMark(t, two)
}

func TestOneStackPerDirectory(t *testing.T) {
	t.Parallel()
	o := devstack.Options{Dir: devstacktest.Dir(t), Services: []devstack.Name{devstack.NATS}}
	start(t, o)
	_, err := devstack.Start(t.Context(), o)
	require.EqualError(t, err, fmt.Sprintf("a stack is already running in %s, of process %d: stop it, or choose another directory with data_dir", o.Dir, os.Getpid()))
}

func TestServicesEndWithTheProcessThatStartedThem(t *testing.T) {
	t.Parallel()
	postgres, nats := killHolder(t, devstacktest.Dir(t))
	require.Eventually(t, func() bool { return !runs(postgres) && !runs(nats) }, 20*time.Second, 10*time.Millisecond)
}

func TestAFrozenServiceOfAKilledStackIsNotInTheWay(t *testing.T) {
	t.Parallel()
	dir := devstacktest.Dir(t)
	postgres, nats := killHolder(t, dir, freezeVariable+"=1")
	require.True(t, runs(postgres))
	start(t, devstack.Options{Dir: dir, Services: []devstack.Name{devstack.Postgres, devstack.NATS}})
	require.False(t, runs(postgres))
	require.False(t, runs(nats))
}

// killHolder has another process start a stack and kills it.
func killHolder(t *testing.T, dir string, env ...string) (postgres, nats int) {
	t.Helper()
	holder := exec.Command(executable(t))
	holder.Env = append(append(os.Environ(), holdVariable+"="+dir), env...)
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	_, scanned := fmt.Fscan(out, &postgres, &nats)
	require.NoError(t, holder.Process.Kill())
	require.Error(t, holder.Wait())
	require.NoError(t, scanned)
	return postgres, nats
}

// runs says whether a process is there and has not ended.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestProcessesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	bystander := exec.Command("sleep", "600")
	require.NoError(t, bystander.Start())
	t.Cleanup(func() {
		require.NoError(t, bystander.Process.Signal(syscall.Signal(0)), "the bystander was ended")
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	})

	o := devstack.Options{Dir: devstacktest.Dir(t), Services: []devstack.Name{devstack.Postgres}}
	s := start(t, o)
	require.NoError(t, s.Postgres.Kill())
	require.NoError(t, s.Stop(t.Context()))

	// What the killed Postgres wrote down now names a process that got its pid later.
	record := filepath.Join(o.Dir, "run", "postgres.json")
	var written map[string]any
	text, err := os.ReadFile(record)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &written))
	written["pid"] = bystander.Process.Pid
	text, err = json.Marshal(written)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(record, text, 0o600))
	lock := filepath.Join(o.Dir, "postgres", "postmaster.pid")
	text, err = os.ReadFile(lock)
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "\n")
	require.NoError(t, os.WriteFile(lock, []byte(strconv.Itoa(bystander.Process.Pid)+"\n"+rest), 0o600))

	start(t, o)
}

func TestAPortThatWasTakenMeanwhile(t *testing.T) {
	t.Parallel()
	o := devstack.Options{Dir: devstacktest.Dir(t), Services: []devstack.Name{devstack.NATS}}
	s := start(t, o)
	address := s.NATS.Address()
	require.NoError(t, s.NATS.Stop(t.Context()))
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	inUse := fmt.Sprintf("port %d, which is to be NATS's, is in use on 127.0.0.1: end the program that listens there, or choose another port", port)

	require.EqualError(t, s.NATS.Start(t.Context()), inUse, "a service keeps its port")
	require.NoError(t, s.Stop(t.Context()))

	fixed := o
	fixed.Ports.NATS = port
	_, err = devstack.Start(t.Context(), fixed)
	require.EqualError(t, err, inUse, "a fixed port is not exchanged")

	var said []string
	o.Progress = func(line string) { said = append(said, line) }
	moved := start(t, o)
	require.NotEqual(t, address, moved.NATS.Address())
	_, newPort, err := net.SplitHostPort(moved.NATS.Address())
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("Port %d is in use, NATS moves to %s", port, newPort), said[0])
}

func TestADirectoryTooDeepForASocket(t *testing.T) {
	t.Parallel()
	outside := func() []string {
		found, err := filepath.Glob(filepath.Join(os.TempDir(), "tidewait-????????????????"))
		require.NoError(t, err)
		return found
	}
	before := outside()
	o := devstack.Options{
		Dir:      filepath.Join(devstacktest.Dir(t), strings.Repeat("deep/", 20)),
		Services: []devstack.Name{devstack.Postgres},
	}
	s := start(t, o)
	require.Len(t, outside(), len(before)+1)
	require.NoError(t, s.Stop(t.Context()))
	require.Equal(t, before, outside())
}

func TestAnInterruptedInitdb(t *testing.T) {
	t.Parallel()
	dir := devstacktest.Dir(t)
	partial := filepath.Join(dir, "postgres.partial")
	require.NoError(t, os.Mkdir(partial, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(partial, "PG_VERSION"), nil, 0o600))
	start(t, devstack.Options{Dir: dir, Services: []devstack.Name{devstack.Postgres}})
	require.NoDirExists(t, partial)
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	for progress, want := range map[string]string{
		"Creating a Postgres cluster": "initdb could not create the Postgres cluster (context canceled): ",
		"Postgres is ready":           "NATS did not become ready (context canceled): ",
	} {
		t.Run(progress, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			o := devstack.Options{
				Dir: devstacktest.Dir(t), Services: []devstack.Name{devstack.Postgres, devstack.NATS},
				Progress: func(line string) {
					if strings.HasPrefix(line, progress) {
						cancel()
					}
				},
			}
			_, err := devstack.Start(ctx, o)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "\n")
			o.Progress = nil
			start(t, o)
		})
	}
}

func TestFailuresSayWhatToDo(t *testing.T) {
	t.Parallel()
	failure := func(o devstack.Options) string {
		_, err := devstack.Start(t.Context(), o)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "\n")
		return err.Error()
	}
	require.Equal(t, "the stack needs a directory", failure(devstack.Options{}))

	dir := devstacktest.Dir(t)
	missing := filepath.Join(dir, "missing")
	require.Equal(t, "cannot run "+missing+", which dev.temporal_cli names: it is missing or no executable file",
		failure(devstack.Options{Dir: dir, Services: []devstack.Name{devstack.Temporal}, TemporalCLI: missing}))
	require.Equal(t, "cannot find initdb and postgres in "+missing+", which dev.postgres_bin names",
		failure(devstack.Options{Dir: dir, Services: []devstack.Name{devstack.Postgres}, PostgresBin: missing}))
	require.Equal(t, "NATS ended while it was starting (exit status 1): it said nothing; its log is "+filepath.Join(dir, "logs", "nats.log"),
		failure(devstack.Options{Dir: dir, Services: []devstack.Name{devstack.NATS}, NATSCommand: []string{"false"}}))

	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Equal(t, "cannot make the stack's directory: mkdir "+file+": not a directory; choose another with data_dir",
		failure(devstack.Options{Dir: file, Services: []devstack.Name{devstack.NATS}}))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ports.json"), []byte("{"), 0o600))
	require.Equal(t, "cannot read the stack's ports from "+filepath.Join(dir, "ports.json")+
		", remove the file to have them chosen anew: unexpected end of JSON input",
		failure(devstack.Options{Dir: dir, Services: []devstack.Name{devstack.NATS}}))
}

func TestAClusterOfAnotherPostgres(t *testing.T) {
	t.Parallel()
	dir := devstacktest.Dir(t)
	data := filepath.Join(dir, "postgres")
	require.NoError(t, os.Mkdir(data, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("9.6\n"), 0o600))
	_, err := devstack.Start(t.Context(), devstack.Options{Dir: dir, Services: []devstack.Name{devstack.Postgres}})
	require.ErrorContains(t, err, data+" was made by Postgres 9.6, and ")
	require.ErrorContains(t, err, ": name the right directory with dev.postgres_bin, or remove "+data+" with all it holds")
}

// Only root must hand Postgres to another user, whom a directory may keep out.
func TestADirectoryThatKeepsPostgresOut(t *testing.T) {
	t.Parallel()
	private := devstacktest.Dir(t)
	require.NoError(t, os.Chmod(private, 0o700))
	dir := filepath.Join(private, "a", "b")
	s, err := devstack.Start(t.Context(), devstack.Options{Dir: dir, Services: []devstack.Name{devstack.Postgres}})
	if os.Geteuid() != 0 {
		require.NoError(t, err)
		devstacktest.Stop(t, s)
		return
	}
	require.EqualError(t, err, "the user postgres, who runs Postgres, cannot reach "+dir+"/postgres: "+private+
		" has mode 0700; choose another directory with data_dir, or run chmod o+x "+private)
}

func TestMissingProgramsAreToldBeforeAnythingStarts(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := filepath.Join(t.TempDir(), "stack")
	_, err := devstack.Start(t.Context(), devstack.Options{Dir: dir})
	require.EqualError(t, err, "cannot find the Temporal CLI (looked for "+filepath.Join(filepath.Dir(executable(t)), "temporal")+
		" and on PATH): run make deps, or go install github.com/temporalio/cli/cmd/temporal@v1.5.1, or name it with dev.temporal_cli")
	require.NoDirExists(t, dir)
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}
