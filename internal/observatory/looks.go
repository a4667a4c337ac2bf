package observatory

import (
	"tidewait/internal/meter"
)

// Looks tells of the lattices that are observed here, those that have been looked
// at.
func (o *Observatory) Looks() []meter.Look {
	o.mu.Lock()
	running := make([]*observation, 0, len(o.running))
	for _, ob := range o.running {
		running = append(running, ob)
	}
	o.mu.Unlock()
	var looks []meter.Look
	for _, ob := range running {
		if observer := ob.synced.Load(); observer != nil {
			look := meter.Look{Account: ob.in.Account, Lattice: ob.in.Lattice, Stats: observer.Stats()}
			look.Failing, look.Level = ob.failing()
			looks = append(looks, look)
		}
	}
	return looks
}

// failing is how many commands wait for their next try, and the most tries in a
// row that one of them has failed, as of the latest looks.
func (ob *observation) failing() (commands, level int) {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	for _, w := range ob.apps {
		for _, f := range w.input.Backoff {
			commands++
			level = max(level, f.Attempts)
		}
	}
	return commands, level
}
