package simhost

import "time"

// Call is a command or query that a host received.
type Call struct {
	Time    time.Time
	Host    string // id of the host that it reached
	Command string // such as component.scale
	ID      string // of the component or provider; a link's source; a config's name
	Image   string // as the command names it
	Body    []byte // as received; not to be changed
}

// record is what the hosts of a lattice were told.
type record struct {
	last   []Call // a ring
	next   int
	counts map[received]int
}

type received struct{ command, host string }

func newRecord(size int) record {
	return record{last: make([]Call, 0, min(size, 1024)), counts: map[received]int{}}
}

func (r *record) add(c Call, size int) {
	r.counts[received{c.Command, c.Host}]++
	if len(r.last) < size {
		r.last = append(r.last, c)
		return
	}
	r.last[r.next] = c
	r.next = (r.next + 1) % len(r.last)
}

// Calls returns what the lattice's hosts received since they, or Forget, began:
// in order, and no more of it than Options.Record says.
func (l *Lattice) Calls() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := make([]Call, 0, len(l.record.last))
	calls = append(calls, l.record.last[l.record.next:]...)
	return append(calls, l.record.last[:l.record.next]...)
}

// Count returns how often a command was received by the host with the given id;
// an empty command or host stands for all. A command that reaches every host
// counts once for each.
func (l *Lattice) Count(command, host string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for r, times := range l.record.counts {
		if (command == "" || command == r.command) && (host == "" || host == r.host) {
			n += times
		}
	}
	return n
}

// Forget begins the record anew.
func (l *Lattice) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record = newRecord(l.opts.Record)
}
