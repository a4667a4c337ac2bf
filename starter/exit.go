package main

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"

	"tidewait/config"
	"tidewait/internal/mission"
)

// Exit codes of every command.
const (
	exitDone         = 0
	exitFailed       = 1
	exitUsage        = 2 // wrong usage, an invalid document or setting, or a release that does not suit the engine's
	exitCapability   = 3 // no known node could ever run it
	exitWaitExceeded = 4
	exitUnreachable  = 5 // a service does not answer
	exitInterrupted  = 130
)

// fault is an error that decides the exit code.
type fault struct {
	code int
	err  error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

func usage(format string, args ...any) error {
	return &fault{exitUsage, fmt.Errorf(format, args...)}
}

func failed(format string, args ...any) error {
	return &fault{exitFailed, fmt.Errorf(format, args...)}
}

func unreachable(format string, args ...any) error {
	return &fault{exitUnreachable, fmt.Errorf(format, args...)}
}

func interrupted(format string, args ...any) error {
	return &fault{exitInterrupted, fmt.Errorf(format, args...)}
}

// exitCode maps an error to the code the process ends with.
func exitCode(err error) int {
	var (
		f       *fault
		invalid *mission.Invalid
		faults  config.Faults
		down    *serviceerror.Unavailable
	)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &f):
		return f.code
	case errors.As(err, &invalid), errors.As(err, &faults):
		return exitUsage
	case errors.As(err, &down):
		return exitUnreachable
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}

// message is what standard error shows of err. Findings stand alone, one a
// line, so that editors can jump to them.
func message(err error) string {
	var invalid *mission.Invalid
	if errors.As(err, &invalid) {
		return invalid.Error()
	}
	if errors.Is(err, context.Canceled) && exitCode(err) == exitInterrupted {
		return "tidewait: interrupted"
	}
	return "tidewait: " + err.Error()
}
