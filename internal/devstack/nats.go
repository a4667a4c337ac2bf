package devstack

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// natsArgument is the first argument of a process that is to be a NATS server.
const natsArgument = "devstack-nats-server"

// maxPayload lets large documents through, which the usual 1 MiB would not.
const maxPayload = 8 << 20

// MaybeRunNATS turns this process into a NATS server, and never returns, when
// the stack started it to be one. Call it first in main, and in the TestMain of
// packages whose tests start a stack.
func MaybeRunNATS() {
	if !isNATSServer() {
		return
	}
	if err := runNATS(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func isNATSServer() bool { return len(os.Args) > 1 && os.Args[1] == natsArgument }

// runNATS serves until a signal ends it.
func runNATS(args []string) error {
	flags := flag.NewFlagSet(natsArgument, flag.ContinueOnError)
	port := flags.Int("port", 0, "TCP port on 127.0.0.1")
	store := flags.String("store", "", "directory of JetStream")
	if err := flags.Parse(args); err != nil {
		return err
	}
	nats, err := server.NewServer(&server.Options{
		ServerName: "tidewait-dev",
		Host:       "127.0.0.1",
		Port:       *port,
		JetStream:  true,
		StoreDir:   *store,
		MaxPayload: maxPayload,
		MaxPending: 64 << 20,
		Logtime:    true,
	})
	if err != nil {
		return fmt.Errorf("cannot set up the NATS server: %w", err)
	}
	nats.ConfigureLogger()
	nats.Start()
	nats.WaitForShutdown()
	return nil
}

// natsCommand is the command line that serves NATS, up to its arguments.
func natsCommand(given []string) ([]string, error) {
	if len(given) > 0 {
		return given, nil
	}
	if isNATSServer() {
		return nil, errors.New("this program does not call devstack.MaybeRunNATS when it starts, and so cannot be the stack's NATS server")
	}
	// Not os.Executable: the file may be replaced while the stack runs.
	return []string{"/proc/self/exe"}, nil
}

func (s *Stack) startNATS(ctx context.Context, o Options, command []string, port int) error {
	store := filepath.Join(o.Dir, "nats")
	s.NATSURL = "nats://" + loopback(port)
	s.NATS = &Service{
		name:    NATS,
		port:    port,
		prepare: func(context.Context) error { return makePrivateDir(store) },
		command: func() *exec.Cmd {
			args := append(append([]string{}, command[1:]...), natsArgument, "-port", strconv.Itoa(port), "-store", store)
			return exec.Command(command[0], args...)
		},
		ready:        func(ctx context.Context) error { return natsReady(ctx, s.NATSURL) },
		whenOrphaned: syscall.SIGKILL,
	}
	return s.launch(ctx, o, s.NATS)
}

// natsReady asks JetStream something.
func natsReady(ctx context.Context, url string) error {
	conn, err := nats.Connect(url, nats.Timeout(time.Second))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := conn.JetStream(nats.Context(ctx))
	if err != nil {
		return err
	}
	_, err = js.AccountInfo(nats.Context(ctx))
	return err
}

func makePrivateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("cannot make a directory of the stack: %w", err)
	}
	return nil
}
