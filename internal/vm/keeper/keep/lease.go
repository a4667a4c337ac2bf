package keep

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm/keeper"
)

// untilEnd returns when the lease in a file is over, on the clock that goes on
// while the host is suspended. Without a file it never returns.
func untilEnd(file string) error {
	if file == "" {
		select {}
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make the timer of the lease: %w", err)
	}
	timer := os.NewFile(uintptr(fd), "lease") //nolint:gosec // a descriptor is not negative
	defer timer.Close()
	for {
		until, err := keeper.ReadLease(file)
		if err != nil || until <= keeper.Boot() {
			return err
		}
		if err := awaitBoot(timer, fd, until); err != nil {
			return err
		}
	}
}

func awaitBoot(timer *os.File, fd int, until time.Duration) error {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(until.Nanoseconds())}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME, &at, nil); err != nil {
		return fmt.Errorf("set the timer of the lease: %w", err)
	}
	if _, err := timer.Read(make([]byte, 8)); err != nil {
		return fmt.Errorf("wait for the end of the lease: %w", err)
	}
	return nil
}
