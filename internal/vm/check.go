package vm

import (
	"context"
	"fmt"
)

// CheckKernel runs uname -r in a machine and compares it with what the machine
// says of itself. Probes end with it.
func CheckKernel(ctx context.Context, m VM) error {
	var release string
	exit, err := m.Run(ctx, Command{Argv: []string{"uname", "-r"}}, func(_ string, line []byte) {
		release += string(line)
	})
	if err != nil {
		return err
	}
	if exit != (Exit{}) || release != m.Info().Kernel {
		return fmt.Errorf("the machine started, but uname -r ended with %+v and said %q where %q was expected", exit, release, m.Info().Kernel)
	}
	return nil
}
