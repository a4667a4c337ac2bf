package lattice

import (
	"slices"

	"tidewait/internal/scaler"
)

// target is what a command on instances is about.
type target struct {
	host string
	key  key
}

// expectation is a command that waits for what comes of it.
type expectation struct {
	target
	stop  bool // whether nothing is to run there in the end
	count int  // instances of a component
	news  chan news
}

// news is what an event says about a command.
type news struct {
	kind  newsKind
	words string // of the host, about a failure
	image string // that the event names
}

type newsKind int

const (
	reached   newsKind = iota // what was asked for
	failed                    // the host says so
	left                      // the host is gone
	restarted                 // the host began a new life, in which it knows of nothing
)

// maxNews is how many pieces of news one command can have unread; what is lost
// beyond is found in the inventory.
const maxNews = 8

func expect(c scaler.Command) *expectation {
	return &expectation{
		target: target{c.Host, key{c.Action != scaler.Scale, c.ID}},
		stop:   c.Action == scaler.StopProvider || c.Action == scaler.Scale && c.Count == 0,
		count:  c.Count,
		news:   make(chan news, maxNews),
	}
}

// met reports whether an inventory's entry is what is waited for.
func (x *expectation) met(e Entry, there bool) bool {
	switch {
	case x.stop:
		return !there
	case x.key.provider:
		return there
	}
	return there && e.Count == x.count
}

func (x *expectation) tell(n news) {
	select {
	case x.news <- n:
	default:
	}
}

func (o *Observer) await(x *expectation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting[x.target] = append(o.waiting[x.target], x)
}

func (o *Observer) forget(x *expectation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := slices.DeleteFunc(o.waiting[x.target], func(y *expectation) bool { return x == y })
	if len(rest) == 0 {
		delete(o.waiting, x.target)
		return
	}
	o.waiting[x.target] = rest
}

// meet tells an event to the commands that wait for it. The event's annotations
// and image are of what was there before, so only host, id and count are
// compared. The caller holds mu.
func (o *Observer) meet(e Event) {
	if len(o.waiting) == 0 {
		return
	}
	switch d := e.Data.(type) {
	case ComponentScaled:
		o.meetComponent(e.Host, d.Entry, news{kind: reached, image: d.Image})
	case ComponentScaleFailed:
		o.meetComponent(e.Host, d.Entry, news{kind: failed, words: d.Error})
	case ProviderStarted:
		o.meetProvider(e.Host, d.ID, false, news{kind: reached})
	case ProviderStartFailed:
		o.meetProvider(e.Host, d.ID, false, news{kind: failed, words: d.Error})
	case ProviderStopped:
		o.meetProvider(e.Host, d.ID, true, news{kind: reached})
	}
}

func (o *Observer) meetComponent(host string, e Entry, n news) {
	for _, x := range o.waiting[target{host, key{false, e.ID}}] {
		if x.count == e.Count {
			x.tell(n)
		}
	}
}

func (o *Observer) meetProvider(host, id string, stop bool, n news) {
	for _, x := range o.waiting[target{host, key{true, id}}] {
		if x.stop == stop {
			x.tell(n)
		}
	}
}

// forsake tells the commands of hosts that are gone, or began a new life, that
// nothing comes of them. The caller holds mu.
func (o *Observer) forsake(c Change) {
	if len(c.Hosts)+len(c.Started) == 0 {
		return
	}
	for t, all := range o.waiting {
		var n news
		switch {
		case slices.Contains(c.Hosts, t.host) && !o.known.Has(t.host):
			n.kind = left
		case slices.Contains(c.Started, t.host):
			n.kind = restarted
		default:
			continue
		}
		for _, x := range all {
			x.tell(n)
		}
	}
}
