package agent

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is a moment of the machine's boot clock: the time since it was booted.
// The clock cannot be set, and goes on while the machine is suspended.
type bootTime time.Duration

// bootNow reads the boot clock.
func bootNow() bootTime {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // Linux has had it since 2.6.39
	}
	return bootTime(ts.Nano())
}

// add returns the moment d after t.
func (t bootTime) add(d time.Duration) bootTime { return t + bootTime(d) }

// lease is the node's right to have machines. It lasts for a fixed time after the
// moment at which the latest heartbeat that was acknowledged was sent: the engine
// counts the node's silence from a later moment, and for longer. At its end the
// fence is called at once, whatever else the agent is busy with.
//
// It is safe for concurrent use.
type lease struct {
	length time.Duration
	timer  *bootTimer
	fence  func()
	// renewed are told each new end, in order, before anybody learns that the
	// lease is held.
	renewed []func(until bootTime)

	renewing sync.Mutex // one renewal at a time; taken before mu

	mu    sync.Mutex
	until bootTime      // zero: it has never been held
	over  bool          // it ended, and was not renewed since
	held  chan struct{} // closed while it is held
}

// newLease returns a lease that is not held yet.
func newLease(length time.Duration, fence func(), renewed ...func(until bootTime)) (*lease, error) {
	timer, err := newBootTimer()
	if err != nil {
		return nil, err
	}
	return &lease{length: length, timer: timer, fence: fence, renewed: renewed, held: make(chan struct{})}, nil
}

// watch calls the fence at each end of the lease, until ctx ends.
func (l *lease) watch(ctx context.Context) {
	stop := context.AfterFunc(ctx, l.timer.close)
	defer stop()
	for l.timer.wait() == nil {
		if l.end() {
			l.fence()
		}
	}
}

// end notes that the lease has ended, unless it was renewed in that moment.
func (l *lease) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.until == 0 || bootNow() < l.until {
		return false
	}
	l.over, l.held = true, make(chan struct{})
	return true
}

// renew extends the lease after a heartbeat that was sent then was acknowledged.
// It reports whether the node holds it: not when the answer came too late. Those
// who are told may take their time: an end that comes meanwhile stays one.
func (l *lease) renew(sent bootTime) bool {
	until := sent.add(l.length)
	l.renewing.Lock()
	defer l.renewing.Unlock()
	extends, wasOver := l.look(until)
	if extends {
		for _, tell := range l.renewed {
			tell(until)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !extends || l.over != wasOver || !l.extends(until) {
		return !l.over && l.until > bootNow()
	}
	l.timer.set(until)
	if l.over || l.until == 0 {
		close(l.held)
	}
	l.until, l.over = until, false
	return true
}

// look reports whether the lease can be extended, and whether it is over now.
func (l *lease) look(until bootTime) (extends, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.extends(until), l.over
}

// extends reports whether the lease can be extended: not when its end has come and
// the fence has not, which comes first. lease.mu must be held.
func (l *lease) extends(until bootTime) bool {
	now := bootNow()
	pending := l.until != 0 && !l.over && l.until <= now
	return until > max(l.until, now) && !pending
}

// ended reports whether the lease has ended and was not renewed since.
func (l *lease) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over || l.until != 0 && l.until <= bootNow()
}

// await returns when the lease is held, or when ctx has ended.
func (l *lease) await(ctx context.Context) error {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bootTimer is an alarm on the boot clock.
type bootTimer struct {
	file *os.File // reading it waits for the alarm
}

func newBootTimer() (*bootTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make a timer on the boot clock: %w", err)
	}
	return &bootTimer{os.NewFile(uintptr(fd), "timer on the boot clock")}, nil
}

// set makes the alarm go off at the given moment and at no other. A closed timer
// does nothing.
func (t *bootTimer) set(at bootTime) {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
		if err := unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
			panic(err) // the arguments are valid
		}
	})
}

// wait returns when the alarm went off, or with an error when the timer was
// closed.
func (t *bootTimer) wait() error {
	var expirations [8]byte
	_, err := t.file.Read(expirations[:])
	return err
}

func (t *bootTimer) close() { _ = t.file.Close() }
