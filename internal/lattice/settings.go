package lattice

import "time"

// Settings are an observer's times and limits. The zero value of each stands
// for the one that is said here.
type Settings struct {
	// Lease is how long a host is believed in after it was last heard of; hosts
	// are heard of every 30 s. 35 s.
	Lease time.Duration
	// Grace is how long a host may be away when it, or this program, has lost
	// its connection. 10 s.
	Grace time.Duration
	// Questions is how many a host whose lease is over may leave unanswered. 2.
	Questions int
	// Tick is how often leases and doubts are looked at. 1 s.
	Tick time.Duration
	// PingWindow is how long answers to a ping are waited for. Those that come
	// some seconds later count as well, and are not waited for. 1 s.
	PingWindow time.Duration
	// Resync is how often everything is asked for again. 5 min.
	Resync time.Duration
	// Parallel is how many questions are open at a time. 16.
	Parallel int
	// Blind is how long the connection to NATS may be away before Run gives up. 20 s.
	Blind time.Duration
	// Unacknowledged is how long a command may take that no host has answered
	// to. 10 s.
	Unacknowledged time.Duration
	// Unheard is how long nothing may be heard of a command that a host has
	// answered to before the host is asked what it runs, again and again. 5 s.
	Unheard time.Duration
	// Component and Provider are how long a command may take that a host has
	// answered to. 60 s.
	Component, Provider time.Duration
}

func (s Settings) withDefaults() Settings {
	set(&s.Lease, 35*time.Second)
	set(&s.Grace, 10*time.Second)
	set(&s.Questions, 2)
	set(&s.Tick, time.Second)
	set(&s.PingWindow, time.Second)
	set(&s.Resync, 5*time.Minute)
	set(&s.Parallel, 16)
	set(&s.Blind, 20*time.Second)
	set(&s.Unacknowledged, 10*time.Second)
	set(&s.Unheard, 5*time.Second)
	set(&s.Component, time.Minute)
	set(&s.Provider, time.Minute)
	return s
}

func set[T time.Duration | int](v *T, standard T) {
	if *v <= 0 {
		*v = standard
	}
}

// latePing is for how much longer than they are waited for answers to a ping are
// taken.
const latePing = 10 * time.Second

// staleLinks is for how long a host may answer with links from before a change.
const staleLinks = time.Second
