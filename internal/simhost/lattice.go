package simhost

import (
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/base32"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Options say what the hosts of a lattice have in common. The zero value works.
type Options struct {
	Lattice   string        // name; default "default"
	Account   string        // first token of all subjects, in multitenant lattices
	Heartbeat time.Duration // between two heartbeats; default 30 s, as real hosts
	Version   string        // of all hosts, a semantic version; default [Version]
	Clock     Clock         // default: the machine's
	Record    int           // how many of the last calls are kept; default 100,000
}

// Version is what simulated hosts say of themselves.
const Version = "1.9.2-sim"

// mailbox is how many messages may wait for a lattice; what comes on top is lost.
const mailbox = 1 << 14

// Lattice is what simulated hosts share. Its methods, and those of its hosts,
// are safe for concurrent use.
type Lattice struct {
	nc     *nats.Conn
	opts   Options
	ctl    string // prefix of commands' subjects
	evt    string // prefix of events' subjects
	mail   chan *nats.Msg
	closed chan struct{}
	ended  chan struct{} // closed when the last message has been worked on

	mu     sync.Mutex // held while a host thinks: all of what follows, and all hosts
	hosts  map[string]*Host
	owners map[*nats.Subscription]*Host
	rules  []*scripted
	store  store
	record record
}

// NewLattice returns a lattice without hosts. It uses nc until Close, and does
// not close it.
func NewLattice(nc *nats.Conn, o Options) *Lattice {
	o.Lattice = cmp.Or(o.Lattice, "default")
	o.Heartbeat = cmp.Or(o.Heartbeat, 30*time.Second)
	o.Version = cmp.Or(o.Version, Version)
	o.Record = cmp.Or(o.Record, 100_000)
	if o.Clock == nil {
		o.Clock = wallClock{}
	}
	account := ""
	if o.Account != "" {
		account = o.Account + "."
	}
	l := &Lattice{
		nc: nc, opts: o,
		ctl:    account + "wasmbus.ctl.v1." + o.Lattice + ".",
		evt:    account + "wasmbus.evt." + o.Lattice + ".",
		mail:   make(chan *nats.Msg, mailbox),
		closed: make(chan struct{}),
		ended:  make(chan struct{}),
		hosts:  map[string]*Host{},
		owners: map[*nats.Subscription]*Host{},
		store:  newStore(),
		record: newRecord(o.Record),
	}
	go l.work()
	return l
}

// work hands every message to the host it is for.
func (l *Lattice) work() {
	defer close(l.ended)
	for {
		select {
		case m := <-l.mail:
			l.mu.Lock()
			if h := l.owners[m.Sub]; h != nil {
				h.run(func() { h.command(m) })
			}
			l.mu.Unlock()
		case <-l.closed:
			return
		}
	}
}

// Close stops all hosts, with goodbyes. It must be called once.
func (l *Lattice) Close() {
	l.mu.Lock()
	for _, id := range slices.Sorted(maps.Keys(l.hosts)) {
		l.hosts[id].goodbye()
	}
	l.mu.Unlock()
	_ = l.nc.FlushTimeout(settle) // without a server nobody hears the hosts anyway
	close(l.closed)
	<-l.ended
}

// Start starts a host: when it returns, the host answers and host_started has
// been published. A host of the same name may not be running; one that ran
// before had the same id.
func (l *Lattice) Start(ctx context.Context, spec HostSpec) (*Host, error) {
	h, err := l.start(spec)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reach)
	defer cancel()
	if err := l.nc.FlushWithContext(ctx); err != nil {
		h.Kill()
		return nil, fmt.Errorf("start the simulated host %s: reach NATS: %w", h.spec.Name, err)
	}
	return h, nil
}

func (l *Lattice) start(spec HostSpec) (*Host, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := newHost(l, spec)
	if running := l.hosts[h.id]; running != nil {
		return nil, fmt.Errorf("start the simulated host %s: %s runs under the id %s already", h.spec.Name, running.spec.Name, h.id)
	}
	if err := h.subscribe(); err != nil {
		h.bury()
		return nil, fmt.Errorf("start the simulated host %s: %w", h.spec.Name, err)
	}
	l.hosts[h.id] = h
	h.publish("host_started", subject{}, map[string]any{
		"friendly_name": h.spec.Name, "labels": h.labels, "uptime_seconds": 0, "version": l.opts.Version,
	})
	h.beat(1)
	return h, nil
}

// Hosts returns the hosts that run, by name.
func (l *Lattice) Hosts() []*Host {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.hosts), func(a, b *Host) int { return cmp.Compare(a.spec.Name, b.spec.Name) })
}

// Links returns the links of the store, by source, each source's in the order
// in which it holds them.
func (l *Lattice) Links() []Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store.links(false)
}

// Config returns a named config of the store.
func (l *Lattice) Config(name string) (values map[string]string, exists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	values, exists = l.store.configs[name]
	return maps.Clone(values), exists
}

// reach is how long a host's start waits for the NATS server to know of it, at most.
const reach = 10 * time.Second

// settle is how long a host's end waits for the NATS server to know of it.
const settle = 2 * time.Second

// publicKey makes up a key of wasmCloud's form: a letter and 55 characters of base 32.
func publicKey(letter byte, seed string) string {
	sum := sha512.Sum512([]byte(string(letter) + seed))
	if letter == 'N' {
		if key, err := nkeys.Encode(nkeys.PrefixByteServer, sum[:32]); err == nil {
			return string(key)
		}
	}
	return string(letter) + base32.StdEncoding.EncodeToString(sum[:])[:55]
}
