package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tidewait/internal/api"
	"tidewait/internal/vm"
)

// Nodes returns the fleet as a table.
func (o Options) Nodes(list api.NodeList) string {
	if len(list.Nodes) == 0 {
		return "no nodes are registered\n"
	}
	rows := make([][]cell, len(list.Nodes))
	for i, n := range list.Nodes {
		rows[i] = []cell{
			text(n.ID),
			statusCell(n.State),
			text(n.Arch),
			text(cpus(n.Reserved.CPUMilli) + "/" + cpus(n.Total.CPUMilli)),
			text(fmt.Sprintf("%d/%d MiB", n.Reserved.MemoryMiB, n.Total.MemoryMiB)),
			text(fmt.Sprintf("%d/%d MiB", n.Reserved.DiskMiB, n.Total.DiskMiB)),
			text(fmt.Sprintf("%d/%d", n.Reserved.Slots, n.Total.Slots)),
			text(o.relative(n.Heartbeat)),
			text(offers(n.Backends)),
		}
	}
	out := o.table([]string{"NODE", "STATE", "ARCH", "CPU", "MEMORY", "DISK", "SLOTS", "SEEN", "BACKENDS"}, rows)
	for _, n := range list.Nodes {
		if n.State == api.StateRefused {
			out += Clean(n.ID+" is refused: "+n.StateCode+": "+n.StateReason) + "\n"
		}
	}
	return out
}

// offers lists backends, those that do not work marked as such.
func offers(backends map[string]api.Backend) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		b := backends[name]
		switch {
		case !b.OK:
			name += " (unusable)"
		case b.Accel != "":
			name += " (" + b.Accel + ")"
		}
		parts = append(parts, name)
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// Node returns everything about one node, what people did to it, the runs that
// hold it and the waits that it has a part in.
func (o Options) Node(n api.NodeDetail, waits []api.Wait) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s   %s   %s\n", o.paint(bold, "node "+Clean(n.ID)), o.status(n.State), "since "+o.moment(n.StateSince))
	out.WriteString(o.nodeFields(n.Node))
	for _, a := range n.Acts {
		out.WriteString(o.field(o.act(a)))
	}
	if len(n.Runs) > 0 {
		out.WriteString("\n" + o.nodeRuns(n.Runs))
	}
	if len(waits) > 0 {
		out.WriteString("\n" + o.Waits(waits))
	}
	return out.String()
}

func (o Options) nodeFields(n api.Node) string {
	var out strings.Builder
	add := func(label, text string) { out.WriteString(o.field(label, text)) }
	why := n.StateReason
	if n.StateCode != "" {
		why = n.StateCode + ": " + why
	}
	if why != "" || n.StateActor != "" {
		add("why", strings.TrimSpace(why+by(n.StateActor)))
	}
	if n.Deadline != nil {
		add("stops", o.moment(*n.Deadline)+": runs that are still there then are ended, and their phases go back to the queue")
	}
	add("arch", n.Arch)
	if len(n.Labels) > 0 {
		add("labels", labels(n.Labels))
	}
	free := n.Total.Sub(n.Reserved)
	add("cpu", fmt.Sprintf("%s of %s reserved, %s free", cpus(n.Reserved.CPUMilli), cpus(n.Total.CPUMilli), cpus(free.CPUMilli)))
	add("memory", reserved(n.Reserved.MemoryMiB, n.Total.MemoryMiB, " MiB"))
	add("disk", reserved(n.Reserved.DiskMiB, n.Total.DiskMiB, " MiB"))
	add("slots", reserved(n.Reserved.Slots, n.Total.Slots, ""))
	if n.StartLimit > 0 {
		add("starts", fmt.Sprintf("%d now, at most %d at once", n.Starting, n.StartLimit))
	}
	if n.Uploads > 0 {
		add("uploads", fmt.Sprintf("%d: runs that have left it and whose results are not committed yet", n.Uploads))
	}
	for _, name := range slices.Sorted(maps.Keys(n.Backends)) {
		add("offers", name+": "+backend(n.Backends[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(n.Backends)) {
		if s := n.Backends[name].Starts; s != (vm.Starts{}) {
			add("started", name+": "+starts(s))
		}
	}
	for _, image := range n.Images {
		if !strings.HasPrefix(image, "sha256:") { // digests are there for placement
			add("image", image)
		}
	}
	add("seen", o.moment(n.Heartbeat))
	add("joined", o.moment(n.Registered))
	if n.Epoch > 1 {
		add("lost", fmt.Sprintf("given up %s so far", count(n.Epoch-1, "time")))
	}
	if leaks := leaks(n); leaks != "" {
		add("leaks", leaks)
	}
	if n.Version != "" {
		add("version", n.Version)
	}
	return out.String()
}

// leaks are what was found and ended that nothing should have left behind.
func leaks(n api.Node) string {
	var parts []string
	for _, l := range []struct {
		n    int64
		what string
	}{
		{n.Leaks.Machines, "machines that nobody wanted"},
		{n.Leaks.Processes, "keepers without a run"},
		{n.Leaks.Cgroups, "cgroups without a run"},
		{n.Leaks.Directories, "directories without a journal"},
		{n.Leaks.Journals, "journals that cannot be read"},
		{n.Orphaned, "reservations without a machine"},
	} {
		if l.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", l.n, l.what))
		}
	}
	return strings.Join(parts, ", ")
}

func by(actor string) string {
	if actor == "" {
		return ""
	}
	return " (by " + actor + ")"
}

func reserved(used, total int64, unit string) string {
	return fmt.Sprintf("%d of %d%s reserved, %d free", used, total, unit, total-used)
}

func labels(m map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, ", ")
}

func backend(b api.Backend) string {
	if !b.OK {
		return "unusable: " + b.Why
	}
	var parts []string
	for _, part := range []string{b.Accel, b.Isolation} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if b.Kernel != "" {
		parts = append(parts, "kernel "+b.Kernel)
	}
	if b.BootMs > 0 {
		parts = append(parts, fmt.Sprintf("boots in %d ms", b.BootMs))
	}
	parts = append(parts, "overhead "+resources(b.Overhead))
	if !b.Enforced {
		parts = append(parts, "limits not enforced")
	}
	text := strings.Join(parts, ", ")
	if b.Why != "" {
		text += "; " + b.Why
	}
	return text
}

// starts says how a backend started machines.
func starts(s vm.Starts) string {
	text := fmt.Sprintf("%d from snapshots, %d cold", s.Snapshot, s.Cold)
	if s.FellBack > 0 {
		text += fmt.Sprintf("; %s failed", count(s.FellBack, "snapshot"))
	}
	if s.Snapshots > 0 {
		text += fmt.Sprintf("; %s of %d MiB kept", count(s.Snapshots, "snapshot"), s.Bytes>>20)
	}
	if s.Why != "" {
		text += "; " + s.Why
	}
	return text
}

func (o Options) nodeRuns(runs []api.NodeRun) string {
	rows := make([][]cell, len(runs))
	for i, r := range runs {
		rows[i] = []cell{
			text(r.ID),
			text(r.Mission + "/" + r.Phase),
			statusCell(r.Status),
			text(r.Step),
			text(o.moment(r.Since)),
			text(o.moment(r.EndsBy)),
			text(resources(r.Reserved)),
		}
	}
	return o.table([]string{"RUN", "WHO", "STATUS", "STEP", "SINCE", "ENDS BY", "HOLDS"}, rows)
}
