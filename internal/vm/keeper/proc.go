package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// StartTicks is when a process started, in clock ticks since boot.
func StartTicks(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything; fields are counted after it.
	_, rest, _ := cutLast(string(b), ") ")
	fields := strings.Fields(rest)
	const startTime = 22 - 3 // the rest begins with field 3
	if len(fields) <= startTime {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields)+2)
	}
	return strconv.ParseUint(fields[startTime], 10, 64)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
