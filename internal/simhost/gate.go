package simhost

// gate is the lock around a host's components, or its providers. What finds it
// closed waits its turn; so do a host's replies and heartbeats while it
// compiles a component.
type gate struct {
	closed  bool
	waiting []func()
}

// pass calls f now, or as soon as the gate is open and those before are through.
func (g *gate) pass(f func()) {
	if g.closed {
		g.waiting = append(g.waiting, f)
		return
	}
	f()
}

func (g *gate) close() { g.closed = true }

func (g *gate) open() {
	g.closed = false
	for !g.closed && len(g.waiting) > 0 {
		f := g.waiting[0]
		g.waiting = g.waiting[1:]
		f()
	}
}
