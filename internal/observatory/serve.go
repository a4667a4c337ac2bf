package observatory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tidewait/internal/api"
	"tidewait/internal/natsrpc"
	"tidewait/internal/scaler"
)

// serve tells of the lattice until ctx ends.
func (ob *observation) serve(ctx context.Context) {
	err := natsrpc.Service{
		Name: "tidewait-lattice", Version: "0.1.0", Description: "lattice " + ob.in.Lattice + " as its observer knows it",
		Handlers: map[string]natsrpc.Handler{
			api.SubjectLattice(ob.in.Account, ob.in.Lattice): func(context.Context, []byte) (any, error) { return ob.detail(), nil },
		},
		Code: func(error) string { return "" }, Log: ob.log,
	}.Serve(ctx, ob.NATS, nil)
	if err != nil && ctx.Err() == nil {
		ob.log.Warn("the lattice cannot be shown", "error", err)
	}
}

func (ob *observation) detail() api.LatticeDetail {
	since, _ := ob.observer.Observed()
	return api.LatticeDetail{
		Now: time.Now().UTC(), Account: ob.in.Account, Lattice: ob.in.Lattice, Observer: ob.Engine, Epoch: ob.epoch,
		Since: since.UTC(), Hosts: ob.observer.Hosts(), Stats: ob.observer.Stats(), Applications: ob.instances(),
	}
}

// instances counts what runs now of what each application wants.
func (ob *observation) instances() []api.LatticeApp {
	hosts := ob.observer.State(nil).Hosts
	ob.mu.Lock()
	defer ob.mu.Unlock()
	var all []api.LatticeApp
	for key, w := range ob.apps {
		if tallies := scaler.Count(key.Name, w.input.Desired, hosts); len(tallies) > 0 {
			all = append(all, api.LatticeApp{Name: key.Name, Instances: tallies})
		}
	}
	slices.SortFunc(all, func(a, b api.LatticeApp) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
