package observatory

import (
	"context"
	"time"

	"tidewait/internal/api"
	"tidewait/internal/natsrpc"
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
		Since: since.UTC(), Hosts: ob.observer.Hosts(), Stats: ob.observer.Stats(),
	}
}
