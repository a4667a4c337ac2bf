package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Boot is the time since the host booted, with the time it was suspended.
func Boot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every kernel that has pidfds has the clock
	}
	return time.Duration(t.Nano())
}

// WriteLease says in a file until when, on the clock of [Boot], the machines of a
// node may live. Whoever reads the file finds the one time or the other.
func WriteLease(file string, until time.Duration) error {
	if err := os.WriteFile(file+".new", fmt.Appendf(nil, "%d %s\n", until.Nanoseconds(), BootID()), 0o600); err != nil {
		return fmt.Errorf("write the lease: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("write the lease: %w", err)
	}
	return nil
}

// ReadLease returns until when the machines of a node may live. A file that is
// not there, or that of another boot of the host, is a lease that is over: 0.
func ReadLease(file string) (time.Duration, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the lease: %w", err)
	}
	return parseLease(string(b), BootID())
}

func parseLease(text, boot string) (time.Duration, error) {
	until, of, ok := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
	ns, err := strconv.ParseInt(until, 10, 64)
	if !ok || err != nil || ns < 0 {
		return 0, fmt.Errorf("read the lease: %.40q is no time", text)
	}
	if of != boot {
		return 0, nil
	}
	return time.Duration(ns), nil
}

// BootID is what the kernel calls this boot of the host; empty: it does not say.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
