package host

import (
	"context"
	"errors"
	"fmt"

	"tidewait/internal/vm"
)

// Unusable stands for a backend that cannot be used: it is reported with the
// reason, runs nothing, and ends what the backend left in its directory.
type Unusable struct {
	name string
	why  error
	runs *Runs[none]
}

// none is the machine that an unusable backend never has.
type none struct{}

func (none) Kill(context.Context) error { return nil }

// NewUnusable stands for a backend with its runs in dir. The error says that it is
// not known what is there.
func NewUnusable(name, dir string, why error) (*Unusable, error) {
	runs, err := OpenRuns[none](dir)
	if err != nil {
		return nil, fmt.Errorf("look for machines of backend %s, which cannot be used: %w", name, errors.Join(err, why))
	}
	return &Unusable{name, why, runs}, nil
}

// Name implements [vm.Backend].
func (u *Unusable) Name() string { return u.name }

// Probe implements [vm.Backend].
func (u *Unusable) Probe(context.Context) vm.Report { return vm.Report{Why: u.why.Error()} }

// List implements [vm.Backend].
func (u *Unusable) List(context.Context) ([]string, error) { return u.runs.List() }

// Starts implements [vm.Backend].
func (u *Unusable) Starts() vm.Starts { return vm.Starts{} }

// Destroy implements [vm.Backend].
func (u *Unusable) Destroy(ctx context.Context, runID string) error {
	return u.runs.Destroy(ctx, runID)
}

// Create implements [vm.Backend].
func (u *Unusable) Create(context.Context, vm.Spec) (vm.VM, error) {
	return nil, &vm.Failure{Code: vm.BootFailed, Message: u.why.Error()}
}

// Sweep implements [vm.Adopter].
func (u *Unusable) Sweep(ctx context.Context) (vm.Leaks, error) { return u.runs.Sweep(ctx) }

// Adopt implements [vm.Adopter].
func (u *Unusable) Adopt(context.Context, string) (vm.Kept, error) {
	return nil, fmt.Errorf("backend %s cannot be used: %w", u.name, u.why)
}
