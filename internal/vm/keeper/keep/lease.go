package keep

import (
	"fmt"

	"tidewait/internal/boot"
	"tidewait/internal/vm/keeper"
)

// untilEnd returns when the lease in a file is over, on the clock that goes on
// while the host is suspended. Without a file it never returns.
func untilEnd(file string) error {
	if file == "" {
		select {}
	}
	alarm, err := boot.NewAlarm()
	if err != nil {
		return fmt.Errorf("wait for the end of the lease: %w", err)
	}
	defer alarm.Close()
	for {
		until, err := keeper.ReadLease(file)
		if err != nil || until <= boot.Now() {
			return err
		}
		alarm.Set(until)
		if err := alarm.Wait(); err != nil {
			return fmt.Errorf("wait for the end of the lease: %w", err)
		}
	}
}
