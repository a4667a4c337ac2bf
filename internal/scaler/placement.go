package scaler

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strings"
)

// triesBeforeElsewhere is how often in a row something fails on a host before
// other hosts are preferred. Sooner, a bad image would be tried everywhere at
// once; never, one bad host would be in the way for good.
const triesBeforeElsewhere = 3

// named is one spread of a scaler. Spreads of one name cannot be told apart on a
// host, so they are one: their counts add up, and a host suits when it suits any.
type named struct {
	Share
	suits []map[string]string
}

func spreads(s Scaler) []named {
	shares := Shares(s.Workload.Instances, s.Workload.Spread)
	if s.Kind == KindDaemon {
		shares = each(s.Workload)
	}
	var all []named
	for _, share := range shares {
		at := slices.IndexFunc(all, func(n named) bool { return n.Spread == share.Spread })
		if at < 0 {
			all = append(all, named{share, []map[string]string{share.Requirements}})
			continue
		}
		if s.Kind != KindDaemon {
			all[at].Count += share.Count
		}
		all[at].suits = append(all[at].suits, share.Requirements)
	}
	return all
}

// each returns what a daemon scaler wants on every host of each spread.
func each(w *Workload) []Share {
	if len(w.Spread) == 0 {
		return []Share{{Spread: DefaultSpread, Count: max(w.Instances, 0)}}
	}
	shares := make([]Share, len(w.Spread))
	for i, s := range w.Spread {
		shares[i] = Share{Spread: s.Name, Requirements: s.Requirements, Count: max(w.Instances, 0)}
	}
	return shares
}

func (n named) eligible(labels map[string]string) bool {
	return slices.ContainsFunc(n.suits, func(r map[string]string) bool { return Eligible(labels, r) })
}

// wishEverywhere places a daemon scaler: on each eligible host, for the first
// spread that it suits.
func (p *planner) wishEverywhere(w *workload, scaler int) {
	s, r := p.Desired[scaler], &p.reports[scaler]
	for _, n := range spreads(s) {
		eligible, taken := 0, 0
		for h := range w.places {
			if !n.eligible(w.places[h].host.Labels) {
				continue
			}
			eligible++
			wished := w.wishes[h]
			switch {
			case n.Count == 0, wished != nil && wished.scaler == scaler, w.provider && w.places[h].foreign:
			case wished != nil, w.places[h].foreign:
				taken++
			case w.provider:
				w.wishes[h] = &wish{scaler, n.Spread, 1}
			default:
				w.wishes[h] = &wish{scaler, n.Spread, n.Count}
			}
		}
		switch {
		case n.Count > 0 && eligible == 0:
			r.waits(CodeNoEligibleHost, p.noEligibleHost(w, n))
		case taken > 0:
			r.fails(CodeHostsTaken, fmt.Sprintf("spread %s: on %s that should run %s, other instances of that id run", n.Spread, hosts(taken), w.id))
		}
	}
}

// wishSpread places a spread scaler: what runs stays where it is as far as it can,
// what is missing goes where there is least of it, what is too much goes from
// where there is most.
func (p *planner) wishSpread(w *workload, scaler int) {
	s, r := p.Desired[scaler], &p.reports[scaler]
	order := p.preference(w, s)
	free := func(h int) bool {
		return w.wishes[h] == nil && (w.provider || !w.places[h].foreign)
	}

	var asked []named
	var demands []demand
	var eligible []int
	for _, n := range spreads(s) {
		if n.Count == 0 {
			continue
		}
		d := demand{count: n.Count, need: 1}
		if w.provider {
			d.need = n.Count
		}
		suitable := 0
		for _, h := range order {
			if n.eligible(w.places[h].host.Labels) {
				suitable++
				if free(h) {
					d.hosts = append(d.hosts, h)
				}
			}
		}
		asked, demands, eligible = append(asked, n), append(demands, d), append(eligible, suitable)
	}

	owner := w.owners(s, asked, demands)
	match(demands, owner)
	if !w.provider {
		widen(demands, owner, order)
	}
	for i, n := range asked {
		var got []int
		for _, h := range demands[i].hosts {
			if owner[h] == i {
				got = append(got, h)
			}
		}
		p.tellShort(w, r, n, demands[i], len(got), eligible[i])
		p.wishAt(w, scaler, n, got)
	}
}

// owners says which places already are some spread's. A provider that somebody
// else started serves as well as one's own, and is not to be had twice.
func (w *workload) owners(s Scaler, asked []named, demands []demand) []int {
	owner := make([]int, len(w.places))
	for h := range owner {
		owner[h] = nobody
	}
	claim := func(is func(at *place, n named) bool) {
		for i, n := range asked {
			has := 0
			for _, o := range owner {
				if o == i {
					has++
				}
			}
			for _, h := range demands[i].hosts {
				if owner[h] == nobody && is(&w.places[h], n) && (!w.provider || has < demands[i].need) {
					owner[h] = i
					has++
				}
			}
		}
	}
	claim(func(at *place, _ named) bool { return at.foreign })
	claim(func(at *place, n named) bool { return at.isFor(s, n.Spread) })
	return owner
}

// wishAt divides the instances of a spread over the hosts it got.
func (p *planner) wishAt(w *workload, scaler int, n named, got []int) {
	if w.provider {
		for _, h := range got {
			if !w.places[h].foreign {
				w.wishes[h] = &wish{scaler, n.Spread, 1}
			}
		}
		return
	}
	s := p.Desired[scaler]
	counts := make([]int, len(got))
	sum := 0
	for i, h := range got {
		if w.places[h].isFor(s, n.Spread) {
			counts[i] = w.places[h].Count
			sum += counts[i]
		}
	}
	if n.Count > sum {
		p.add(w, s, got, counts, n.Count-sum)
	} else {
		level(counts, n.Count-sum)
	}
	for i, h := range got {
		if counts[i] > 0 {
			w.wishes[h] = &wish{scaler, n.Spread, counts[i]}
		}
	}
}

// add adds to those hosts that failed least.
func (p *planner) add(w *workload, s Scaler, got, counts []int, by int) {
	var best, chosen []int
	least := math.MaxInt
	for i, h := range got {
		n := p.setbacks(s, w.places[h].host)
		if n < least {
			least, best, chosen = n, nil, nil
		}
		if n == least {
			best, chosen = append(best, i), append(chosen, counts[i])
		}
	}
	level(chosen, by)
	for i, b := range best {
		counts[b] = chosen[i]
	}
}

// preference orders hosts for a workload: those that failed less first, and
// among equals each workload in an order of its own, so that many small ones
// do not meet on one host.
func (p *planner) preference(w *workload, s Scaler) []int {
	setbacks := make([]int, len(w.places))
	score := make([]uint64, len(w.places))
	for h := range w.places {
		setbacks[h], score[h] = p.setbacks(s, w.places[h].host), mix(w.id, w.places[h].host.ID)
	}
	return rank(setbacks, func(a, b int) int {
		return cmp.Or(cmp.Compare(setbacks[a], setbacks[b]), cmp.Compare(score[a], score[b]))
	})
}

func (p *planner) setbacks(s Scaler, h *Host) int {
	f, _ := p.Backoff.Find(Key{Subject: s.ID, Host: h.ID})
	return f.Attempts / triesBeforeElsewhere
}

func mix(workload, host string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(workload))
	h.Write([]byte{0})
	h.Write([]byte(host))
	x := binary.BigEndian.Uint64(h.Sum(nil))
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

func (p *planner) noEligibleHost(w *workload, n named) string {
	var alternatives []string
	for _, r := range n.suits {
		var labels []string
		for _, k := range slices.Sorted(maps.Keys(r)) {
			labels = append(labels, k+"="+r[k])
		}
		alternatives = append(alternatives, "labels "+join(labels))
	}
	return fmt.Sprintf("spread %s of %s: of %s alive, none has %s", n.Spread, w.id, hosts(len(p.hosts)), strings.Join(alternatives, " or "))
}

// tellShort says why a spread got fewer hosts than it needs.
func (p *planner) tellShort(w *workload, r *report, n named, d demand, got, eligible int) {
	switch {
	case eligible == 0:
		r.waits(CodeNoEligibleHost, p.noEligibleHost(w, n))
	case got >= d.need:
	case eligible < d.need:
		r.fails(CodeNotEnoughHosts, fmt.Sprintf("spread %s of %s: %d of %d instances, for it runs at most once on each of %s",
			n.Spread, w.id, got, d.need, hosts(eligible)))
	default:
		r.fails(CodeHostsTaken, fmt.Sprintf("spread %s of %s: %d of %d instances, for other spreads or other instances of that id have taken its %s",
			n.Spread, w.id, min(got, d.count), d.count, hosts(eligible)))
	}
}
