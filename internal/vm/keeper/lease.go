package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"tidewait/internal/boot"
	"tidewait/internal/wholefile"
)

// WriteLease says in a file until when, on the clock of [boot.Now], the machines of a
// node may live. Whoever reads the file finds the one time or the other.
func WriteLease(file string, until time.Duration) error {
	if err := wholefile.Replace(file, fmt.Appendf(nil, "%d %s\n", until.Nanoseconds(), boot.ID())); err != nil {
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
	return parseLease(string(b), boot.ID())
}

func parseLease(text, id string) (time.Duration, error) {
	until, of, ok := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
	ns, err := strconv.ParseInt(until, 10, 64)
	if !ok || err != nil || ns < 0 {
		return 0, fmt.Errorf("read the lease: %.40q is no time", text)
	}
	if of != id {
		return 0, nil
	}
	return time.Duration(ns), nil
}
