package simhost

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// inventory is the answer to host.get, and the data of a heartbeat.
type inventory struct {
	Components []componentDescription `json:"components"`
	Providers  []providerDescription  `json:"providers"`
	HostID     string                 `json:"host_id"`
	Name       string                 `json:"friendly_name"`
	Labels     map[string]string      `json:"labels"`
	Version    string                 `json:"version"`
	UptimeText string                 `json:"uptime_human"`
	Uptime     int64                  `json:"uptime_seconds"`
}

type componentDescription struct {
	ID          string            `json:"id"`
	Image       string            `json:"image_ref"`
	Name        string            `json:"name,omitempty"`
	Annotations map[string]string `json:"annotations"`
	Revision    int               `json:"revision"`
	Count       uint32            `json:"max_instances"`
	Limits      map[string]string `json:"limits"`
}

type providerDescription struct {
	ID          string            `json:"id"`
	Image       string            `json:"image_ref"`
	Name        string            `json:"name,omitempty"`
	Revision    int               `json:"revision"`
	Annotations map[string]string `json:"annotations"`
}

// withInventory calls f with the inventory, once components and providers can be read.
func (h *Host) withInventory(f func(inventory)) {
	h.componentGate.pass(func() {
		components := make([]componentDescription, 0, len(h.components))
		for _, id := range slices.Sorted(maps.Keys(h.components)) {
			components = append(components, h.components[id].describe(id))
		}
		h.providerGate.pass(func() {
			providers := make([]providerDescription, 0, len(h.providers))
			for _, id := range slices.Sorted(maps.Keys(h.providers)) {
				providers = append(providers, h.providers[id].describe(id))
			}
			f(inventory{
				Components: components, Providers: providers, HostID: h.id, Name: h.spec.Name, Labels: h.labels,
				Version: h.l.opts.Version, UptimeText: uptimeText(h.uptime()), Uptime: int64(h.uptime() / time.Second),
			})
		})
	})
}

func (h *Host) getInventory(r *request) {
	h.withInventory(func(i inventory) { h.answer(r, found(i)) })
}

// hostDescription is the answer to host.ping.
type hostDescription struct {
	RPCHost    string            `json:"rpc_host"`
	CtlHost    string            `json:"ctl_host"`
	Name       string            `json:"friendly_name"`
	ID         string            `json:"id"`
	Labels     map[string]string `json:"labels"`
	Lattice    string            `json:"lattice"`
	UptimeText string            `json:"uptime_human"`
	Uptime     int64             `json:"uptime_seconds"`
	Version    string            `json:"version"`
}

func (h *Host) ping(r *request) {
	server := h.l.nc.ConnectedUrlRedacted()
	h.answer(r, found(hostDescription{
		RPCHost: server, CtlHost: server, Name: h.spec.Name, ID: h.id, Labels: h.labels, Lattice: h.l.opts.Lattice,
		UptimeText: uptimeText(h.uptime()), Uptime: int64(h.uptime() / time.Second), Version: h.l.opts.Version,
	}))
}

// stopByCommand ends the host as a command says. The answer comes before the event.
func (h *Host) stopByCommand(r *request) {
	if len(r.body) > 0 {
		f := parse(r.body)
		id := f.text("host_id", "")
		if raw, is := f.values["timeout"]; is && string(raw) != "null" {
			_, err := strconv.ParseUint(string(raw), 10, 64)
			f.bad = f.bad || err != nil
		}
		if f.bad {
			h.answer(r, refused("failed to deserialize stop command"))
			return
		}
		if id != "" && id != h.id {
			h.answer(r, refused("invalid host_id ["+id+"]"))
			return
		}
	}
	h.answer(r, done("successfully handled stop host"))
	h.goodbye()
}

func (h *Host) putLabel(r *request) {
	f := parse(r.body)
	key, value := f.must("key"), f.must("value")
	switch {
	case f.bad:
		h.answer(r, refused("failed to deserialize put label request"))
	case isReserved(key):
		h.answer(r, refused("hostcore.* labels cannot be set dynamically"))
	default:
		h.labels[key] = value
		h.labelsChanged()
		h.answer(r, done("successfully put label"))
	}
}

func (h *Host) deleteLabel(r *request) {
	f := parse(r.body)
	key := f.must("key")
	if f.bad {
		h.answer(r, refused("failed to deserialize delete label request"))
		return
	}
	if _, is := h.labels[key]; !is {
		h.answer(r, done("successfully deleted label (no such label)"))
		return
	}
	delete(h.labels, key)
	h.labelsChanged()
	h.answer(r, done("successfully deleted label"))
}

func (h *Host) labelsChanged() {
	h.publish("labels_changed", subject{}, map[string]any{"host_id": h.id, "labels": h.labels})
}

// putRegistries takes credentials and has no use for them.
func (h *Host) putRegistries(r *request) {
	if parse(r.body).bad {
		h.answer(r, refused("failed to deserialize registries put command"))
		return
	}
	h.answer(r, done("successfully put registries"))
}

// componentBid and providerBid are answers to auctions.
type componentBid struct {
	Reference   string            `json:"component_ref"`
	ID          string            `json:"component_id"`
	HostID      string            `json:"host_id"`
	Constraints map[string]string `json:"constraints"`
}

type providerBid struct {
	HostID      string            `json:"host_id"`
	Reference   string            `json:"provider_ref"`
	ID          string            `json:"provider_id"`
	Constraints map[string]string `json:"constraints"`
}

// auctionComponent bids for a component. Hosts take its reference for its id,
// so that one that runs it already bids all the same.
func (h *Host) auctionComponent(r *request) {
	f := parse(r.body)
	reference, constraints := f.text("component_ref", ""), f.pairs("constraints", true)
	f.must("component_id")
	if f.bad {
		h.answer(r, refused("failed to deserialize component auction command"))
		return
	}
	h.componentGate.pass(func() {
		if h.components[reference] == nil && h.satisfies(constraints) {
			h.answer(r, found(componentBid{Reference: reference, ID: reference, HostID: h.id, Constraints: constraints}))
		}
	})
}

func (h *Host) auctionProvider(r *request) {
	f := parse(r.body)
	reference, id, constraints := f.text("provider_ref", ""), f.must("provider_id"), f.pairs("constraints", true)
	if f.bad {
		h.answer(r, refused("failed to deserialize provider auction command"))
		return
	}
	h.providerGate.pass(func() {
		if h.providers[id] == nil && h.satisfies(constraints) {
			h.answer(r, found(providerBid{HostID: h.id, Reference: reference, ID: id, Constraints: constraints}))
		}
	})
}

func (h *Host) satisfies(constraints map[string]string) bool {
	for key, value := range constraints {
		if label, is := h.labels[key]; !is || label != value {
			return false
		}
	}
	return true
}

func (h *Host) uptime() time.Duration { return h.l.opts.Clock.Now().Sub(h.started) }

// uptimeText writes whole seconds as hosts do: 1h 2m 3s, 2days.
func uptimeText(d time.Duration) string {
	const day = 86400
	left := int64(d / time.Second)
	var parts []string
	for _, unit := range []struct {
		seconds int64
		one     string
		many    string
	}{
		{31_557_600, "year", "years"},
		{2_630_016, "month", "months"},
		{day, "day", "days"},
		{3600, "h", "h"},
		{60, "m", "m"},
		{1, "s", "s"},
	} {
		n := left / unit.seconds
		left %= unit.seconds
		switch {
		case n == 1:
			parts = append(parts, "1"+unit.one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d%s", n, unit.many))
		}
	}
	if len(parts) == 0 {
		return "0s"
	}
	return strings.Join(parts, " ")
}
