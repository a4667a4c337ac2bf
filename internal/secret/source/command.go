package source

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// command runs a command of the settings and returns what it prints. What it says
// on standard error is not kept, since nobody knows what is in there. err is set
// when ctx was cancelled.
func (s Sources) command(ctx context.Context, name string) (value []byte, why string, err error) {
	argv := s.Commands[name]
	if len(argv) == 0 {
		return nil, "may not be run: the gateway's gateway.secret_commands does not name it", nil
	}
	limited, cancel := context.WithTimeout(ctx, s.Time)
	defer cancel()
	var out output
	cmd := exec.CommandContext(limited, argv[0], argv[1:]...) //nolint:gosec // of the gateway's own settings
	cmd.Dir = "/"
	cmd.Stdout = &out
	// What it starts ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	ended := cmd.Run()
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, "", fmt.Errorf("run the command of a secret: %w", context.Cause(ctx))
	case ctx.Err() != nil:
		return nil, "did not end in the time for all secrets of a run", nil
	case limited.Err() != nil:
		return nil, fmt.Sprintf("did not end within %s", s.Time), nil
	case out.tooLarge:
		return nil, "printed more than 64 KiB", nil
	}
	return out.bytes, whyFailed(ended), nil
}

func whyFailed(err error) string {
	exit := new(exec.ExitError)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &exit) && exit.Exited():
		return fmt.Sprintf("failed: the command exited with code %d", exit.ExitCode())
	case errors.As(err, &exit):
		return "failed: the command was ended by a signal"
	case errors.Is(err, exec.ErrWaitDelay):
		return "failed: the command left something running that holds its output open"
	}
	return "failed: the command cannot be started"
}

// output keeps what a command prints, up to the limit of a value.
type output struct {
	bytes    []byte
	tooLarge bool
}

var errTooLarge = errors.New("too large")

// Write implements io.Writer. Its error ends the command, at its next write.
func (o *output) Write(p []byte) (int, error) {
	if len(o.bytes)+len(p) > maxRead {
		o.tooLarge = true
		return 0, errTooLarge
	}
	o.bytes = append(o.bytes, p...)
	return len(p), nil
}
