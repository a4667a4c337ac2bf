package render

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"tidewait/internal/api"
	"tidewait/internal/lattice"
	"tidewait/internal/ledger"
	"tidewait/internal/remedy"
)

// Lattices returns lattices as a table.
func (o Options) Lattices(list api.LatticeList) string {
	if len(list.Lattices) == 0 {
		return "no lattice has been observed\n"
	}
	rows := make([][]cell, len(list.Lattices))
	for i, l := range list.Lattices {
		first, checked := dash, dash
		if l.ObservedSince != nil {
			first = text(o.moment(*l.ObservedSince))
		}
		if l.CheckedAt != nil {
			checked = text(o.relative(*l.CheckedAt))
		}
		rows[i] = []cell{
			text(latticeName(l.Account, l.Lattice)), text(strconv.Itoa(l.Hosts)), text(strconv.Itoa(l.Applications)),
			first, text(l.Observer), text(o.moment(l.TakenAt)), checked,
		}
	}
	return o.table([]string{"LATTICE", "HOSTS", "APPLICATIONS", "FIRST HOST", "OBSERVER", "OBSERVED SINCE", "CHECKED"}, rows)
}

// latticeName leaves the account out where there is one only.
func latticeName(account, name string) string {
	if account == ledger.DefaultAccount {
		return name
	}
	return account + "/" + name
}

// Lattice returns what the observer of a lattice knows, and what waits there.
func (o Options) Lattice(l api.LatticeDetail, waits []api.Wait) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s   %s\n", o.paint(bold, "lattice "+Clean(latticeName(l.Account, l.Lattice))), count(int64(len(l.Hosts)), "host")+" alive")
	out.WriteString(o.field("observer", fmt.Sprintf("%s, epoch %d, since %s", Clean(l.Observer), l.Epoch, o.moment(l.Since))))
	if passed := l.Stats.Unknown + l.Stats.Unreadable; passed > 0 {
		out.WriteString(o.field("events", fmt.Sprintf("%d read, %d passed over", l.Stats.Events, passed)))
	}
	for _, h := range l.Hosts {
		out.WriteString("\n" + o.host(h))
	}
	if len(waits) > 0 {
		out.WriteString("\n" + o.Waits(waits) + "\n" + o.latticeAdvice(waits))
	}
	return out.String()
}

// latticeAdvice lists what a person can do about each code of the waits of a
// lattice. Commands are about the application that waits so, or NAME when there are
// several.
func (o Options) latticeAdvice(waits []api.Wait) string {
	byCode := map[string]api.Wait{}
	var codes []string
	for _, w := range waits {
		if _, known := byCode[w.Code]; known {
			w.Application = "NAME"
		} else {
			codes = append(codes, w.Code)
		}
		byCode[w.Code] = w
	}
	out := ""
	for _, code := range codes {
		w := byCode[code]
		out += "about " + o.paint(yellow, Clean(code)) + "\n"
		out += o.remedies(w, remedy.ShowLattice("", w.Account, w.Lattice).Command)
	}
	return out
}

// healthStyle holds the colour of what hosts say of providers.
var healthStyle = map[lattice.Health]style{lattice.Healthy: green, lattice.Unhealthy: red}

func (o Options) host(h lattice.Host) string {
	var out strings.Builder
	fmt.Fprintf(&out, "host %s   %s   version %s, up %s, seen %s\n", o.paint(bold, Clean(h.ID)), Clean(h.Name), Clean(h.Version), Duration(h.Uptime), o.relative(h.LastSeen))
	out.WriteString(o.field("labels", cmp.Or(labels(h.Labels), "none")))
	var rows [][]cell
	add := func(kind string, entries []lattice.Entry) {
		for _, e := range entries {
			app, health := dash, dash
			if e.App() != "" {
				app = text(e.App())
			}
			if e.Health != lattice.HealthUnknown {
				health = cell{text: Clean(string(e.Health)), style: healthStyle[e.Health]}
			}
			rows = append(rows, []cell{text(kind), text(e.ID), text(strconv.Itoa(e.Count)), app, health, text(e.Image)})
		}
	}
	add("component", h.Components)
	add("provider", h.Providers)
	if len(rows) == 0 {
		return out.String() + o.field("runs", "nothing")
	}
	out.WriteString(o.table([]string{"KIND", "ID", "INSTANCES", "APPLICATION", "HEALTH", "IMAGE"}, rows))
	return out.String()
}
