package scaler

import (
	"cmp"
	"slices"
)

// demand is what one spread asks of the hosts that suit it. Hosts are numbers.
type demand struct {
	count int   // instances, more than zero
	need  int   // hosts it cannot do without
	hosts []int // that suit, the best first
}

// nobody owns a host that is free.
const nobody = -1

// match gives hosts to demands until each has what it needs, or no further one
// can get it whatever the others give up. owner says which demand has each host
// already. As few hosts as possible change hands: a demand that goes short takes
// a free host, or one that another demand has beyond its need, or one that
// another demand can replace in the same way. No demand loses what it needs.
func match(demands []demand, owner []int) {
	m := matching{
		demands: demands, owner: owner, has: make([]int, len(demands)),
		taker: make([]int, len(owner)), handed: make([]int, len(demands)),
	}
	for _, d := range owner {
		if d != nobody {
			m.has[d]++
		}
	}
	for d := range demands {
		for m.has[d] < demands[d].need && m.gain(d) {
		}
	}
}

type matching struct {
	demands []demand
	owner   []int // of each host
	has     []int // hosts of each demand
	// While a chain is sought:
	taker  []int // of each host, who would take it
	handed []int // of each demand, the host it would give up
}

// gain gives one more host to a demand, along the shortest chain of demands that
// each take a host from the next one.
func (m matching) gain(d int) bool {
	for i := range m.owner {
		m.taker[i] = nobody
	}
	reached := make([]bool, len(m.demands))
	reached[d] = true
	for chain := []int{d}; len(chain) > 0; {
		var hosts []int
		for _, x := range chain {
			for _, h := range m.demands[x].hosts {
				if m.taker[h] == nobody && m.owner[h] != x {
					m.taker[h] = x
					hosts = append(hosts, h)
				}
			}
		}
		if h, ok := m.spare(hosts); ok {
			m.shift(h, d)
			return true
		}
		chain = nil
		for _, h := range hosts {
			if x := m.owner[h]; !reached[x] {
				reached[x], m.handed[x] = true, h
				chain = append(chain, x)
			}
		}
	}
	return false
}

// spare returns the first host that is free, or else the first that its demand
// does not need.
func (m matching) spare(hosts []int) (int, bool) {
	for _, can := range []func(owner int) bool{
		func(owner int) bool { return owner == nobody },
		func(owner int) bool { return m.has[owner] > m.demands[owner].need },
	} {
		if i := slices.IndexFunc(hosts, func(h int) bool { return can(m.owner[h]) }); i >= 0 {
			return hosts[i], true
		}
	}
	return 0, false
}

// shift hands host to its taker, what the taker gives up for it to the one that
// takes that, and so on, until first has one more.
func (m matching) shift(host, first int) {
	for {
		d := m.taker[host]
		m.give(host, d)
		if d == first {
			return
		}
		host = m.handed[d]
	}
}

func (m matching) give(host, d int) {
	if was := m.owner[host]; was != nobody {
		m.has[was]--
	}
	m.owner[host] = d
	m.has[d]++
}

// widen gives free hosts, in the order given, to the demands that they suit and
// that have the most instances for each of their hosts, as long as those have
// more instances than hosts. Demands that got nothing so far get nothing.
func widen(demands []demand, owner, order []int) {
	has := make([]int, len(demands))
	for _, d := range owner {
		if d != nobody {
			has[d]++
		}
	}
	suits := make([][]bool, len(demands))
	for d := range demands {
		suits[d] = make([]bool, len(owner))
		for _, h := range demands[d].hosts {
			suits[d][h] = true
		}
	}
	for _, h := range order {
		if owner[h] != nobody {
			continue
		}
		best, most := nobody, 1.0
		for d := range demands {
			if has[d] == 0 || !suits[d][h] {
				continue
			}
			if density := float64(demands[d].count) / float64(has[d]); density > most {
				best, most = d, density
			}
		}
		if best != nobody {
			owner[h] = best
			has[best]++
		}
	}
}

// level adds by instances to, or takes them from, hosts that have so many: where
// there are fewest when adding, most when taking, so that they become as equal
// as can be. Of equals, the first ones get more and the last ones lose first. At
// most what is there is taken.
func level(have []int, by int) {
	if by < 0 {
		lower(have, -by)
		return
	}
	if len(have) == 0 {
		return
	}
	order := rank(have, func(a, b int) int { return cmp.Compare(have[a], have[b]) })
	n, at := 1, have[order[0]] // the n lowest are to be at one level
	for ; n < len(order); n++ {
		step := have[order[n]] - at
		if step > by/n {
			break
		}
		at, by = have[order[n]], by-step*n
	}
	low := order[:n]
	slices.Sort(low)
	for i, h := range low {
		have[h] = at + by/n
		if i < by%n {
			have[h]++
		}
	}
}

func lower(have []int, by int) {
	if len(have) == 0 {
		return
	}
	order := rank(have, func(a, b int) int { return cmp.Compare(have[b], have[a]) })
	n, at := 1, have[order[0]]
	for ; n < len(order); n++ {
		step := at - have[order[n]]
		if step > by/n {
			break
		}
		at, by = have[order[n]], by-step*n
	}
	high := order[:n]
	slices.Sort(high)
	for i, h := range high {
		have[h] = at - by/n
		if i >= n-by%n {
			have[h]--
		}
		have[h] = max(have[h], 0)
	}
}

// rank returns the indexes of have in an order; equals stay as they are.
func rank(have []int, order func(a, b int) int) []int {
	indexes := make([]int, len(have))
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortStableFunc(indexes, order)
	return indexes
}
