package simhost

import (
	"strings"
	"time"
)

// provider is a provider that a host runs.
type provider struct {
	image       string // without scheme
	annotations map[string]string
	config      []string
	claims      *Claims
	health      []Health // answers to come; the last repeats
	healthy     bool     // said the last answer
}

func (p *provider) describe(id string) providerDescription {
	d := providerDescription{ID: id, Image: p.image, Annotations: p.annotations}
	if p.claims != nil {
		d.Name, d.Revision = p.claims.Name, p.claims.Revision
	}
	return d
}

// starting is a command to start a provider.
type starting struct {
	id, image   string
	hostID      string // of the body; nobody compares it
	annotations map[string]string
	config      []string
	effect      Rule
}

// builtin returns the name of a builtin provider, or "".
func (s starting) builtin() string {
	name, is := strings.CutPrefix(s.image, builtinScheme)
	if !is {
		return ""
	}
	return name
}

// startProvider answers first; the outcome is told by events. A disabled builtin
// http-server or messaging-nats is not answered at all.
func (h *Host) startProvider(r *request) {
	f := parse(r.body)
	s := starting{
		id: f.must("provider_id"), image: f.text("provider_ref", ""), hostID: f.text("host_id", ""),
		annotations: f.pairs("annotations", false), config: f.texts("config", false), effect: r.effect,
	}
	if f.bad {
		h.answer(r, refused("failed to deserialize provider start command"))
		return
	}
	h.providerGate.pass(func() {
		if h.providers[s.id] != nil {
			h.answer(r, refused("provider with that ID is already running"))
			return
		}
		if name := s.builtin(); !h.spec.Builtins && (name == "http-server" || name == "messaging-nats") {
			return
		}
		h.answer(r, done("successfully started provider"))
		h.after(s.effect.FetchDelay, func() { h.startFetched(s) })
	})
}

func (h *Host) startFetched(s starting) {
	claims, fault := h.archive(s)
	switch {
	case fault != "":
	case s.effect.Invalid != "":
		fault = s.effect.Invalid
	case s.effect.Fail != "":
		fault = s.effect.Fail
	case !isKey("COMPONENT_" + s.id):
		fault = "failed to get component spec: " + illegalKey
	}
	if fault != "" {
		h.startFailed(s, fault)
		return
	}
	h.l.store.introduce(s.id)
	h.providerGate.pass(func() {
		config, fault := h.useConfig(s.config, claims != nil)
		if h.providers[s.id] != nil {
			fault = "provider is already running with that ID"
		} else if fault == "" {
			fault = h.builtinFault(s.builtin())
		}
		if fault != "" {
			h.startFailed(s, fault)
			return
		}
		h.behind(&h.providerGate, s.effect.LockDelay, func() { h.providerStarted(s, config, claims) })
	})
}

// archive returns the claims of the provider's archive, none for builtins.
func (h *Host) archive(s starting) (claims *Claims, fault string) {
	if s.builtin() != "" {
		return nil, ""
	}
	if fault := fetched(providerKind, s.image, s.effect); fault != "" {
		return nil, fault
	}
	claims = s.effect.Claims
	if claims == nil {
		claims = archiveClaims(s.image)
	}
	h.remember(claims, map[string]string{"config_schema": ""})
	return claims, ""
}

func (h *Host) builtinFault(name string) string {
	switch name {
	case "":
		return ""
	case "http-client", "http-server", "messaging-nats":
		if h.spec.Builtins {
			return ""
		}
		return "feature `builtin-" + name + "` is not enabled, denying start"
	}
	return "unknown builtin name: " + name
}

// A provider's first probe, and the time between two.
const (
	firstProbe    = 5 * time.Second
	probeInterval = 30 * time.Second
)

// providerStarted tells of a provider as soon as its process exists, whatever
// becomes of it.
func (h *Host) providerStarted(s starting, config []string, claims *Claims) {
	p := &provider{image: bare(s.image), annotations: s.annotations, config: config, claims: claims, health: s.effect.Health}
	data := map[string]any{"annotations": s.annotations, "host_id": s.hostID, "image_ref": p.image, "provider_id": s.id}
	if claims != nil {
		data["claims"] = claims.provider()
		data["instance_id"], data["public_key"], data["link_name"] = s.id, s.id, "default"
	}
	h.publish("provider_started", subject{id: s.id, image: s.image}, data)
	h.providers[s.id] = p
	if claims != nil {
		h.after(firstProbe, func() { h.probe(s.id, p) })
	}
}

func (h *Host) startFailed(s starting, words string) {
	h.publish("provider_start_failed", subject{id: s.id, image: s.image}, map[string]any{
		"error": words, "host_id": s.hostID, "link_name": "default", "provider_id": s.id, "provider_ref": s.image,
	})
}

// probe asks a provider for its health. A process counts as unhealthy until it
// says otherwise; what does not change is told as status, and silence not at all.
func (h *Host) probe(id string, p *provider) {
	if h.providers[id] != p {
		return
	}
	answer := Healthy
	if len(p.health) > 0 {
		answer = p.health[0]
	}
	if len(p.health) > 1 {
		p.health = p.health[1:]
	}
	h.after(probeInterval, func() { h.probe(id, p) })
	if answer == Silent {
		return
	}
	name, healthy := "health_check_status", answer == Healthy
	switch {
	case healthy && !p.healthy:
		name = "health_check_passed"
	case !healthy && p.healthy:
		name = "health_check_failed"
	}
	p.healthy = healthy
	h.publish(name, subject{id: id, image: p.image}, map[string]any{"host_id": h.id, "provider_id": id})
}

// shutdownDelay is how long a host waits for a provider that does not end.
const shutdownDelay = 300 * time.Millisecond

// stopProvider answers when the provider's process has ended and the event is
// out. A process ignores a shutdown in another host's name, and is then killed.
func (h *Host) stopProvider(r *request) {
	f := parse(r.body)
	hostID, id := f.text("host_id", ""), f.text("provider_id", f.text("provider_ref", ""))
	if f.bad {
		h.answer(r, refused("failed to deserialize provider stop command"))
		return
	}
	h.providerGate.pass(func() {
		p := h.providers[id]
		if p == nil {
			h.answer(r, refused("provider with that ID is not running"))
			return
		}
		delete(h.providers, id)
		delay := r.effect.LockDelay
		if hostID != h.id {
			delay = max(delay, shutdownDelay)
		}
		h.behind(&h.providerGate, delay, func() {
			h.publish("provider_stopped", subject{id: id, image: p.image}, map[string]any{
				"annotations": p.annotations, "host_id": hostID, "instance_id": id, "link_name": "default",
				"provider_id": id, "public_key": id, "reason": "stop",
			})
			h.answer(r, done("successfully stopped provider"))
		})
	})
}
