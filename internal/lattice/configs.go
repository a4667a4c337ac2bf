package lattice

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Want sets which configurations an application is concerned with, in place of
// those it was before, and reads the values of those that are not known yet. Its
// error says which stayed unknown; State tells them apart. From then on they are
// kept up to date.
func (o *Observer) Want(ctx context.Context, app string, names []string) error {
	o.mu.Lock()
	if len(names) == 0 {
		delete(o.wants, app)
	} else {
		o.wants[app] = names
	}
	all := map[string]bool{}
	for _, names := range o.wants {
		for _, name := range names {
			all[name] = true
		}
	}
	unknown := o.known.Want(all)
	o.mu.Unlock()
	// What another application wants and nobody answers for is not its concern.
	unknown = slices.DeleteFunc(unknown, func(name string) bool { return !slices.Contains(names, name) })
	return o.readConfigs(ctx, unknown)
}

func (o *Observer) wanted() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known.Wanted()
}

func (o *Observer) readConfigs(ctx context.Context, names []string) error {
	var reads errgroup.Group
	reads.SetLimit(o.settings.Parallel)
	errs := make([]error, len(names))
	for i, name := range names {
		reads.Go(func() error {
			errs[i] = o.readConfig(ctx, name)
			return nil
		})
	}
	_ = reads.Wait()
	return errors.Join(errs...)
}

func (o *Observer) readConfig(ctx context.Context, name string) error {
	o.mu.Lock()
	mark := o.known.Mark()
	o.mu.Unlock()
	values, found, err := o.client.Config(ctx, name)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fold(o.known.Config(name, values, found, mark))
	return nil
}

// ownConfig notes what was done to a configuration.
func (o *Observer) ownConfig(name string, values map[string]string, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fold(o.known.SetConfig(name, values, found))
}
