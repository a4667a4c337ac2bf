// Tidewait is the command line of Tidewait: it launches missions, shows what
// runs and what waits, and steers both. It speaks Temporal and NATS only.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"tidewait/internal/devstack"
)

func main() {
	devstack.MaybeRunNATS() // a child of dev is this program as a NATS server
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code. The first interrupt
// ends the command in its own way, the second the process.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return runContext(ctx, args, stdin, stdout, stderr)
}

func runContext(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := &cli{in: stdin, out: stdout, errs: stderr}
	root := rootCommand(c)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	if !c.began {
		err = usage("%w; see `%s --help`", err, cmd.CommandPath())
	}
	fmt.Fprintln(stderr, message(err))
	return exitCode(err)
}
