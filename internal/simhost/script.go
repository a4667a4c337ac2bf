package simhost

import (
	"strings"
	"time"
)

// Rule changes what hosts do. It is about commands, or about events if Event is
// set. Every field of the first group that is set must match; everything that
// is set in the other groups then happens. Of several rules that match, all
// apply, and where they differ, the one scripted last.
type Rule struct {
	Command string // such as component.scale or link.put; empty: all
	Event   string // such as component_scaled; "*": all
	Host    string // id or name
	ID      string // of the component or provider; a link's source; a config's name
	Image   string // reference; its scheme does not matter, a trailing * stands for the rest
	Skip    int    // the first so many matches pass untouched
	Times   int    // at most so many apply; 0: no limit

	// How a command is answered.

	Ignore   bool          // it is neither executed nor answered
	Refuse   string        // it is answered by success: false with these words, and not executed
	NoAck    bool          // it is executed and not answered
	AckDelay time.Duration // the answer takes so long, the execution does not
	Reply    []byte        // sent instead of the answer
	Stale    bool          // link.get does not see the last change yet

	// How a command is executed.

	FetchDelay time.Duration // the registry takes so long
	Fetch      FetchFault    // the image cannot be fetched
	Invalid    string        // the image is fetched and refused with these words, when scaling to 0 too
	Fail       string        // the start, scale or stop to 0 is denied with these words after the fetch
	LockDelay  time.Duration // compiling a component, starting or ending a provider's process; much of the host waits
	WriteDelay time.Duration // between the reading and the writing of a source's links
	Overtaken  bool          // a scale is executed behind the next one of its component, or a second later
	Claims     *Claims       // what the image is signed with
	Health     []Health      // the answers of the started provider's process to probes; the last repeats

	// What becomes of an event.

	Lose    bool          // it is not published
	Copies  int           // it is published so many times more
	Delay   time.Duration // it is published so much later
	Payload []byte        // published instead of it
}

// Health is what a provider's process answers to a probe.
type Health int

// The answers to a probe.
const (
	Healthy   Health = iota
	Unhealthy        // the process says that it is not well
	Silent           // it does not answer, or not in JSON: no event tells
)

// scripted is a rule and how often it has matched.
type scripted struct {
	Rule
	matched int
}

// Script adds rules. The function it returns takes them away again.
func (l *Lattice) Script(rules ...Rule) (heal func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	added := make(map[*scripted]bool, len(rules))
	for _, r := range rules {
		s := &scripted{Rule: r}
		added[s] = true
		l.rules = append(l.rules, s)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		var kept []*scripted
		for _, s := range l.rules {
			if !added[s] {
				kept = append(kept, s)
			}
		}
		l.rules = kept
	}
}

// subject is what rules are matched with.
type subject struct {
	command, event string
	host           *Host
	id, image      string
}

// effects merges the rules that apply.
func (l *Lattice) effects(s subject) Rule {
	var merged Rule
	for _, r := range l.rules {
		if !r.matches(s) {
			continue
		}
		r.matched++
		if r.matched <= r.Skip || (r.Times > 0 && r.matched > r.Skip+r.Times) {
			continue
		}
		merged.add(r.Rule)
	}
	return merged
}

func (r *scripted) matches(s subject) bool {
	if s.event == "" {
		if r.Event != "" || (r.Command != "" && r.Command != s.command) {
			return false
		}
	} else if r.Event != "*" && r.Event != s.event {
		return false
	}
	return (r.Host == "" || r.Host == s.host.id || r.Host == s.host.spec.Name) &&
		(r.ID == "" || r.ID == s.id) && (r.Image == "" || imageMatches(r.Image, s.image))
}

func imageMatches(pattern, image string) bool {
	if prefix, open := strings.CutSuffix(bare(pattern), "*"); open {
		return strings.HasPrefix(bare(image), prefix)
	}
	return bare(pattern) == bare(image)
}

func (r *Rule) add(o Rule) {
	r.Ignore = r.Ignore || o.Ignore
	r.NoAck = r.NoAck || o.NoAck
	r.Stale = r.Stale || o.Stale
	r.Overtaken = r.Overtaken || o.Overtaken
	r.Lose = r.Lose || o.Lose
	over(&r.Refuse, o.Refuse)
	over(&r.Invalid, o.Invalid)
	over(&r.Fail, o.Fail)
	over(&r.AckDelay, o.AckDelay)
	over(&r.FetchDelay, o.FetchDelay)
	over(&r.LockDelay, o.LockDelay)
	over(&r.WriteDelay, o.WriteDelay)
	over(&r.Delay, o.Delay)
	over(&r.Copies, o.Copies)
	over(&r.Claims, o.Claims)
	if o.Reply != nil {
		r.Reply = o.Reply
	}
	if o.Payload != nil {
		r.Payload = o.Payload
	}
	if o.Fetch != nil {
		r.Fetch = o.Fetch
	}
	if o.Health != nil {
		r.Health = o.Health
	}
}

// over sets what the later rule says, if it says anything.
func over[T comparable](value *T, later T) {
	var unset T
	if later != unset {
		*value = later
	}
}
