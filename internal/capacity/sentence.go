package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ask says what was asked for. overhead is what the backend adds in all.
func ask(d Demand, overhead Resources) string {
	extra := ""
	if overhead != (Resources{}) {
		extra = " (+" + phrase(overhead) + " overhead)"
	}
	return "needs " + sum(d.Resources) + extra + " on " + kind(d)
}

// sum is what all machines of a demand get. One machine goes without saying.
func sum(r Resources) string {
	machines := r.Slots
	r.Slots = 0
	if machines == 1 {
		return phrase(r)
	}
	return strconv.FormatInt(machines, 10) + " machines with " + phrase(r) + " in all"
}

// kind names what a demand asks of a node besides room.
func kind(d Demand) string {
	var terms []string
	if d.Arch != "" {
		terms = append(terms, "arch "+d.Arch)
	}
	if len(d.Labels) > 0 {
		terms = append(terms, "labels "+labels(d))
	}
	if len(terms) == 0 {
		return "backend " + d.Backend
	}
	return "backend " + d.Backend + " with " + strings.Join(terms, " and ")
}

func labels(d Demand) string {
	keys := slices.Sorted(maps.Keys(d.Labels))
	for i, k := range keys {
		keys[i] = k + "=" + d.Labels[k]
	}
	return strings.Join(keys, ",")
}

func noNodes(d Demand) string {
	return ask(d, Resources{}) + "; no node is registered"
}

// invalid says what is wrong with the request itself, or "".
func invalid(d Demand) string {
	if d.Backend == "" {
		return "names no backend; every phase needs one"
	}
	for i, v := range d.Resources.dims() {
		limit := int64(maxAmount)
		if i == slots {
			limit = maxSlots
		}
		switch {
		case v < 0, v == 0 && i != disk:
			return "asks for " + amount(i, v) + " on " + kind(d) +
				"; CPUs, memory and slots must be more than zero and disk not less than zero"
		case v > limit:
			return "asks for " + amount(i, v) + " on " + kind(d) + "; the most one phase can ask for is " + amount(i, limit)
		}
	}
	return ""
}

func backendUnsupported(c *class, d Demand) string {
	offered := map[string]bool{}
	for _, m := range c.unable {
		for name, o := range m.node.Backends {
			offered[name] = offered[name] || o.OK
		}
	}
	maps.DeleteFunc(offered, func(_ string, ok bool) bool { return !ok })
	s := "needs " + kind(d)
	if d.Network {
		s += " and a network between machines"
	}
	s += "; "
	if n := len(c.unable); n == 1 {
		s += "the only node, " + c.unable[0].node.ID + ", does not offer it"
	} else {
		s += fmt.Sprintf("none of %d nodes offers it", n)
	}
	if near := nearestToOffer(c, d); near != nil {
		what := "its probe failed on " + near.ID
		if near.Backends[d.Backend].OK {
			what = "machines of " + near.ID + " cannot reach each other"
		}
		s += ": " + what + because(near.Backends[d.Backend].Why)
	} else if len(offered) > 0 {
		s += "; what is offered: " + list(slices.Sorted(maps.Keys(offered)))
	}
	return s
}

// nearestToOffer returns a node that lacks of d's backend a network only, else
// one on which its probe failed; nil: there is none.
func nearestToOffer(c *class, d Demand) *Node {
	var near *Node
	for _, m := range c.unable {
		o, probed := m.node.Backends[d.Backend]
		switch {
		case !probed:
		case near == nil, o.OK && !near.Backends[d.Backend].OK, o.OK == near.Backends[d.Backend].OK && m.node.ID < near.ID:
			near = m.node
		}
	}
	return near
}

func archUnmatched(c *class, d Demand) string {
	archs := map[string]bool{}
	var near []*machine
	for _, m := range c.unable {
		if mismatch(m.node, d) == CodeArchUnmatched {
			near = append(near, m)
			archs[m.node.Arch] = true
		}
	}
	have := list(slices.Sorted(maps.Keys(archs)))
	if len(near) == 1 {
		return "needs " + kind(d) + "; the only node that offers it, " + near[0].node.ID + ", is " + have
	}
	return fmt.Sprintf("needs %s; the %d nodes that offer it are %s", kind(d), len(near), have)
}

func labelsUnmatched(c *class, d Demand) string {
	near := slices.DeleteFunc(slices.Clone(c.unable), func(m *machine) bool {
		return mismatch(m.node, d) != CodeLabelsUnmatched
	})
	best := slices.MinFunc(near, func(a, b *machine) int {
		return cmp.Or(
			cmp.Compare(len(labelClauses(a.node, d)), len(labelClauses(b.node, d))),
			cmp.Compare(a.node.ID, b.node.ID))
	})
	clauses := list(labelClauses(best.node, d))
	if len(near) == 1 {
		return "needs " + kind(d) + "; the only node that offers it, " + best.node.ID + ", " + clauses
	}
	return fmt.Sprintf("needs %s; the nearest of %d nodes that offer it, %s, %s", kind(d), len(near), best.node.ID, clauses)
}

// labelClauses says of each label that n does not match what it has instead.
func labelClauses(n *Node, d Demand) []string {
	var clauses []string
	for _, k := range slices.Sorted(maps.Keys(d.Labels)) {
		switch have, ok := n.Labels[k]; {
		case !ok:
			clauses = append(clauses, "has no label "+k)
		case have != d.Labels[k]:
			clauses = append(clauses, "has label "+k+"="+have)
		}
	}
	return clauses
}

// exceeds speaks of a demand that is larger than every node of its kind. When
// one resource alone is too large everywhere it names that one.
func (s *survey) exceeds(c *class) string {
	d := s.demand
	i, largest := scarceEverywhere(c, d.Resources)
	if largest == nil {
		near := s.nearest[0]
		return ask(d, s.overhead) + "; " + among(c, "nearest", near.node.ID) + " is too small by " + phrase(near.short)
	}
	extra := ""
	if o := largest.need(d.Resources).Sub(d.Resources).dims()[i]; o != 0 {
		extra = " (+" + quantity(i, o) + " overhead)"
	}
	what := amount(i, d.Resources.dims()[i])
	if i == slots {
		what = strconv.FormatInt(d.Resources.Slots, 10) + " machines (a slot each)"
	} else if d.Resources.Slots > 1 {
		what += " for " + strconv.FormatInt(d.Resources.Slots, 10) + " machines"
	}
	return "needs " + what + extra + " on " + kind(d) + "; " +
		among(c, "largest", largest.node.ID) + " has " + quantity(i, largest.allocatable.dims()[i])
}

// among introduces one node of the right kind: "the largest of 3 nodes, node-a,".
func among(c *class, which, id string) string {
	offer := ""
	if len(c.unable) > 0 {
		offer = " of that kind"
	}
	if len(c.able) == 1 {
		return "the only node" + offer + ", " + id + ","
	}
	return fmt.Sprintf("the %s of %d nodes%s, %s,", which, len(c.able), offer, id)
}

// scarceEverywhere finds the dimension in which even the node with the most of
// it is too small, the one with the largest missing share if there are several.
// The node is nil when no single dimension is to blame.
func scarceEverywhere(c *class, r Resources) (dimension int, largest *candidate) {
	weights := scaleOf(r)
	worst := 0.0
	for i := range dimensions {
		room := func(cand *candidate) int64 { return cand.allocatable.Sub(cand.need(r)).dims()[i] }
		most := &c.able[0]
		for j := range c.able {
			cand := &c.able[j]
			if a, b := room(cand), room(most); a > b || a == b && cand.node.ID < most.node.ID {
				most = cand
			}
		}
		if share := -weights[i] * float64(room(most)); share > worst {
			dimension, largest, worst = i, most, share
		}
	}
	return dimension, largest
}

// cause is the second half of a capacity refusal's sentence.
func (s *survey) cause(code Code) string {
	near := &s.nearest[0]
	switch code {
	case CodeHeldForHead:
		return "it fits on " + near.node.ID + ", which is " + s.why(near)
	case CodeBehindInQueue:
		return "it would have fitted, but others ahead were placed first and " + s.shortOf("now ")
	case CodeNodesLost, CodeNodesDraining:
		return s.closed()
	case CodeFragmented:
		return fmt.Sprintf("%d nodes have %s free in sum, but the nearest, %s, is short by %s",
			s.ready, phrase(s.free), near.node.ID, phrase(near.short))
	default:
		return s.shortOf("")
	}
}

// shortOf says what keeps the nearest node from taking the demand.
func (s *survey) shortOf(adverb string) string {
	near := &s.nearest[0]
	switch {
	case near.standing == startLimited:
		return near.node.ID + " has room but is " + adverb + s.why(near)
	case s.ready == 1:
		return near.node.ID + " is " + adverb + s.why(near)
	default:
		return "the nearest of " + strconv.Itoa(s.ready) + " nodes, " + near.node.ID + ", is " + adverb + s.why(near)
	}
}

// closed says why no node of the right kind takes new work.
func (s *survey) closed() string {
	c := s.counts
	n := c.Lost + c.Draining + c.Cordoned
	who := fmt.Sprintf("of %d nodes that could run it, ", n)
	if n == 1 {
		who = "the only node that could run it, " + s.nearest[0].node.ID + ", "
	}
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{c.Lost, "not reporting"}, {c.Draining, "draining"}, {c.Cordoned, "cordoned"}} {
		switch {
		case p.n > 0 && n == 1:
			parts = append(parts, "is "+p.what)
		case p.n == 1:
			parts = append(parts, "1 is "+p.what)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d are %s", p.n, p.what))
		}
	}
	return who + list(parts)
}

// reasons puts the nearest nodes into words.
func (s *survey) reasons() []NodeReason {
	if len(s.nearest) == 0 {
		return nil
	}
	out := make([]NodeReason, len(s.nearest))
	for i := range s.nearest {
		out[i] = NodeReason{NodeID: s.nearest[i].node.ID, Why: s.why(&s.nearest[i])}
	}
	return out
}

func (s *survey) why(seen *sighting) string {
	switch seen.standing {
	case held:
		return "held for #" + strconv.FormatInt(seen.owner, 10)
	case startLimited:
		return fmt.Sprintf("starting %d of at most %d machines", seen.starting, seen.startLimit)
	case full:
		return "short by " + phrase(seen.short)
	case tooSmall:
		return "too small by " + phrase(seen.short)
	case mismatched:
		return mismatchClause(seen.node, s.demand)
	default:
		return string(seen.node.State)
	}
}

func mismatchClause(n *Node, d Demand) string {
	switch mismatch(n, d) {
	case CodeArchUnmatched:
		return "is " + n.Arch + ", not " + d.Arch
	case CodeLabelsUnmatched:
		return list(labelClauses(n, d))
	}
	o, probed := n.Backends[d.Backend]
	switch {
	case o.OK:
		return "its machines cannot reach each other" + because(o.Why)
	case probed:
		return "backend " + d.Backend + " failed its probe" + because(o.Why)
	}
	return "does not offer backend " + d.Backend
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// inLine says where in the line a refused demand is. front has the numbers of
// the first [MaxAhead] in line; holds names the node held for this very demand,
// if any.
func inLine(position int, front []int64, holds string) string {
	var b strings.Builder
	b.WriteString("; ")
	b.WriteString(ordinal(position))
	b.WriteString(" in line")
	ahead := front[:min(position-1, len(front))]
	others := position - 1 - len(ahead)
	for i, id := range ahead {
		switch {
		case i == 0:
			b.WriteString(" behind #")
		case i == len(ahead)-1 && others == 0:
			b.WriteString(" and #")
		default:
			b.WriteString(", #")
		}
		b.WriteString(strconv.FormatInt(id, 10))
	}
	switch {
	case others == 1:
		b.WriteString(" and 1 other")
	case others > 1:
		b.WriteString(" and ")
		b.WriteString(strconv.Itoa(others))
		b.WriteString(" others")
	}
	if holds != "" {
		b.WriteString(", and ")
		b.WriteString(holds)
		b.WriteString(" is held for it")
	}
	return b.String()
}

func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// phrase lists what is in r, such as "2 CPUs, 2 GiB of memory and 1 slot".
func phrase(r Resources) string {
	parts := 0
	for _, v := range r.dims() {
		if v != 0 {
			parts++
		}
	}
	if parts == 0 {
		return "nothing"
	}
	b := make([]byte, 0, 64)
	for i, v := range r.dims() {
		if v == 0 {
			continue
		}
		b = appendAmount(b, i, v)
		switch parts--; parts {
		case 0:
		case 1:
			b = append(b, " and "...)
		default:
			b = append(b, ", "...)
		}
	}
	return string(b)
}

// amount is a quantity with the name of what it is a quantity of.
func amount(dimension int, v int64) string {
	return string(appendAmount(nil, dimension, v))
}

func appendAmount(b []byte, dimension int, v int64) []byte {
	b = appendQuantity(b, dimension, v)
	switch dimension {
	case memory:
		b = append(b, " of memory"...)
	case disk:
		b = append(b, " of disk"...)
	}
	return b
}

func quantity(dimension int, v int64) string {
	return string(appendQuantity(nil, dimension, v))
}

// appendQuantity never rounds: the numbers in a refusal must add up.
func appendQuantity(b []byte, dimension int, v int64) []byte {
	switch {
	case dimension == cpu:
		return appendPlural(appendFraction(b, v, 1000), " CPU", v == 1000)
	case dimension == slots:
		return appendPlural(strconv.AppendInt(b, v, 10), " slot", v == 1)
	case v >= 1024 && v%256 == 0:
		return append(appendFraction(b, v, 1024), " GiB"...)
	default:
		return append(strconv.AppendInt(b, v, 10), " MiB"...)
	}
}

func appendPlural(b []byte, noun string, one bool) []byte {
	b = append(b, noun...)
	if !one {
		b = append(b, 's')
	}
	return b
}

func appendFraction(b []byte, v, unit int64) []byte {
	if v%unit == 0 {
		return strconv.AppendInt(b, v/unit, 10)
	}
	return strconv.AppendFloat(b, float64(v)/float64(unit), 'f', -1, 64)
}

func list(parts []string) string {
	switch n := len(parts); n {
	case 0:
		return ""
	case 1:
		return parts[0]
	default:
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
}
