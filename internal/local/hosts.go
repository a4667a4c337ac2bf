package local

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"tidewait/config"
	"tidewait/internal/simhost"
)

// Hosts are simulated wasmCloud hosts that live in this process.
type Hosts struct {
	Lattice *simhost.Lattice
	nc      *nats.Conn
}

// SimulateHosts starts simulated hosts on the product's NATS server, in the
// lattice that commands mean when they name none.
func (p *Product) SimulateHosts(ctx context.Context, n int) (*Hosts, error) {
	s, err := p.Settings()
	if err != nil {
		return nil, err
	}
	return SimulateHosts(ctx, s, n, p.opts.Log)
}

// recordedCalls is how many of the last calls are kept; nobody asks for more.
const recordedCalls = 1000

// SimulateHosts starts n simulated hosts, sim-1 and so on, on the NATS server
// and in the lattice of the settings. They are labelled zone=a, b and c in turn.
func SimulateHosts(ctx context.Context, s config.Settings, n int, log *slog.Logger) (*Hosts, error) {
	nc, err := config.ConnectNATS(s.NATS, "tidewait-simulated-hosts", log)
	if err != nil {
		return nil, err
	}
	h := &Hosts{Lattice: simhost.NewLattice(nc, simhost.Options{Lattice: s.Wadm.Lattice, Record: recordedCalls}), nc: nc}
	zones := []string{"a", "b", "c"}
	for i := range n {
		spec := simhost.HostSpec{Name: fmt.Sprintf("sim-%d", i+1), Labels: map[string]string{"zone": zones[i%len(zones)]}}
		if _, err := h.Lattice.Start(ctx, spec); err != nil {
			h.Stop()
			return nil, err
		}
	}
	return h, nil
}

// Stop stops all hosts, with goodbyes. It must be called once.
func (h *Hosts) Stop() {
	h.Lattice.Close()
	h.nc.Close()
}
