package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Deadlines of one git command. A context with less time wins.
const (
	localDeadline = 2 * time.Minute
	bulkDeadline  = 10 * time.Minute // fetches, bundles, archives
	stopGrace     = 5 * time.Second  // from TERM to KILL, so that git removes its lock files
)

// git is a way of running git commands in one place.
type git struct {
	place    []string // arguments that say where: --git-dir=DIR or -C DIR
	settings []string // key=value, on top of quiet
	env      []string // on top of the minimum
	deadline time.Duration
}

// quiet is the configuration of every command: nothing of a repository is
// executed, nothing is fetched that was not asked for, nothing runs later.
var quiet = []string{
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.attributesFile=/dev/null",
	"core.fsync=committed",
	"core.compression=1",
	"core.filesRefLockTimeout=5000",
	"core.packedRefsTimeout=5000",
	"core.quotePath=true",
	"fastimport.unpackLimit=1", // a pack a commit: loose objects are compressed twice
	"fetch.recurseSubmodules=false",
	"gc.auto=0",
	"init.defaultBranch=main",
	"log.showSignature=false",
	"maintenance.auto=false",
	"protocol.allow=never",
	"protocol.ext.allow=never",
	"submodule.recurse=false",
}

// bare is git in a bare repository of ours: no user's or system's configuration.
func bare(dir string) git {
	return git{
		place:    []string{"--git-dir=" + dir},
		env:      []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"},
		deadline: localDeadline,
	}
}

// allowing is g with the named transports and no others.
func (g git) allowing(protocols ...string) git {
	g.settings = append([]string(nil), g.settings...)
	for _, p := range protocols {
		g.settings = append(g.settings, "protocol."+p+".allow=always")
	}
	g.env = append(g.env[:len(g.env):len(g.env)], "GIT_ALLOW_PROTOCOL="+strings.Join(protocols, ":"))
	g.deadline = bulkDeadline
	return g
}

func (g git) slowly() git {
	g.deadline = bulkDeadline
	return g
}

// gitError is a git command that failed. What git wrote is in stderr.
type gitError struct {
	command  string
	stderr   string
	cause    error
	deadline time.Duration // not zero: it was stopped after this time
}

func (e *gitError) Error() string { return "git " + e.command + ": " + e.sentence() }

func (e *gitError) Unwrap() error { return e.cause }

// GitFailed reports whether an error is git's own: a command that ended by itself
// and did not succeed, as it does in a repository that cannot be read, or an answer
// that an object is not there. One that was stopped, or that found nobody to take
// what it wrote, is none.
func GitFailed(err error) bool {
	var missing *unread
	if errors.As(err, &missing) {
		return true
	}
	var failure *gitError
	if !errors.As(err, &failure) || failure.deadline != 0 {
		return false
	}
	return failure.status() != 0
}

// status is the command's exit status; 0: it did not end by itself.
func (e *gitError) status() int {
	var exit *exec.ExitError
	if errors.As(e.cause, &exit) {
		return max(exit.ExitCode(), 0)
	}
	return 0
}

// sentence is git's own words without its prefixes.
func (e *gitError) sentence() string {
	if e.deadline != 0 {
		return "it did not end within " + e.deadline.String()
	}
	last := ""
	for line := range strings.Lines(e.stderr) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"fatal: ", "error: "} {
			if words, ok := strings.CutPrefix(line, prefix); ok {
				return words
			}
		}
		if line != "" {
			last = line
		}
	}
	if last == "" {
		return e.cause.Error()
	}
	return last
}

func (e *gitError) says(words ...string) bool {
	for _, w := range words {
		if strings.Contains(e.stderr, w) {
			return true
		}
	}
	return false
}

// output runs a command and returns what it printed, without the last newline.
func (g git) output(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := g.run(ctx, nil, &out, args...)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// run executes one command with its own deadline. The error is a [*gitError],
// or the context's when that ended first.
func (g git) run(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	limited, cancel := context.WithTimeout(ctx, g.deadline)
	defer cancel()
	cmd, stderr := g.command(limited, args)
	cmd.Stdin, cmd.Stdout = stdin, stdout
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("git is not installed; install git 2.39 or later")
	case ctx.Err() != nil:
		return fmt.Errorf("git %s: %w", args[0], context.Cause(ctx))
	}
	failure := &gitError{command: args[0], stderr: stderr.String(), cause: err}
	if limited.Err() != nil {
		failure.deadline = g.deadline
	}
	return failure
}

func (g git) command(ctx context.Context, args []string) (*exec.Cmd, *tail) {
	var line []string
	for _, setting := range append(quiet[:len(quiet):len(quiet)], g.settings...) {
		line = append(line, "-c", setting)
	}
	line = append(append(line, g.place...), args...)
	cmd := exec.CommandContext(ctx, "git", line...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"LC_ALL=C",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_ALLOW_PROTOCOL=",
		"GIT_PROTOCOL_FROM_USER=0",
		"GIT_NO_REPLACE_OBJECTS=1",
	}, g.env...)
	// A session of its own: no terminal to prompt on, and one group to stop.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	stderr := &tail{}
	cmd.Stderr = stderr
	return cmd, stderr
}

// feed runs a command whose input write produces, and returns what it printed.
// An error of write is returned as it is.
func (g git) feed(ctx context.Context, write func(io.Writer) error, args ...string) (string, error) {
	in, out := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(out)
		out.CloseWithError(err)
		written <- err
	}()
	var printed bytes.Buffer
	err := g.run(ctx, in, &printed, args...)
	in.CloseWithError(errNoReader)
	if failed := <-written; failed != nil && !errors.Is(failed, errNoReader) {
		return "", failed
	}
	return strings.TrimSuffix(printed.String(), "\n"), err
}

var errNoReader = errors.New("the command ended")

// tail keeps the last part of what is written to it.
type tail struct{ kept []byte }

const maxTail = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - maxTail; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.kept) }

// isCommit reports whether id is a full commit id.
func isCommit(id string) bool {
	return len(id) == 40 && strings.Trim(id, "0123456789abcdef") == ""
}
