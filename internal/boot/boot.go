// Package boot knows the host's present boot: what the kernel calls it, and the
// clock that counts from it. The clock cannot be set, and goes on while the host is
// suspended.
package boot

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the host booted, with the time it was suspended.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // Linux has had it since 2.6.39
	}
	return time.Duration(t.Nano())
}

// ID is what the kernel calls this boot of the host; empty: it does not say. It is
// asked each time: a guest that was restored is another than that of its snapshot.
func ID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Alarm goes off at a moment of the clock. Wait is for one goroutine; Set and Close
// may be called from others.
type Alarm struct {
	file *os.File // reading it waits for the alarm
}

// NewAlarm returns an alarm that is not set.
func NewAlarm() (*Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make a timer on the boot clock: %w", err)
	}
	return &Alarm{os.NewFile(uintptr(fd), "timer on the boot clock")}, nil //nolint:gosec // a descriptor is not negative
}

// Set makes the alarm go off at the given moment, which is after the boot, and at no
// other. A closed alarm does nothing.
func (a *Alarm) Set(at time.Duration) {
	raw, err := a.file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(at.Nanoseconds())}
		if err := unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
			panic(err) // the arguments are valid
		}
	})
}

// Wait returns when the alarm went off, or with an error when it was closed.
func (a *Alarm) Wait() error {
	var expirations [8]byte
	_, err := a.file.Read(expirations[:])
	return err
}

// Close ends the alarm and whoever waits for it.
func (a *Alarm) Close() error { return a.file.Close() }
