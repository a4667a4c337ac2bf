package simhost

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// component is the one entry that a host has for a component's id.
type component struct {
	image       string // as reported; see runs
	runs        string // the image whose code was instantiated
	count       uint32
	annotations map[string]string
	config      []string // without secrets
	claims      *Claims
}

func (c *component) describe(id string) componentDescription {
	d := componentDescription{ID: id, Image: c.image, Annotations: c.annotations, Count: c.count}
	if c.claims != nil {
		d.Name, d.Revision = c.claims.Name, c.claims.Revision
	}
	return d
}

// scaling is a command to scale.
type scaling struct {
	id, image   string
	hostID      string // of the body; nobody compares it
	annotations map[string]string
	count       uint32
	config      []string
	mayUpdate   bool
	effect      Rule
}

// scale answers first; then the image is fetched, and only then something happens.
func (h *Host) scale(r *request) {
	f := parse(r.body)
	s := scaling{
		id: f.must("component_id"), image: f.text("component_ref", ""), hostID: f.text("host_id", ""),
		annotations: f.pairs("annotations", false), count: f.count("count"), config: f.texts("config", false),
		mayUpdate: f.flag("allow_update"), effect: r.effect,
	}
	f.pairs("component_limits", false)
	if f.bad {
		h.answer(r, refused("failed to deserialize component scale command"))
		return
	}
	h.componentGate.pass(func() {
		running := h.components[s.id]
		differs := running != nil && running.image != s.image
		s.mayUpdate = s.mayUpdate && differs
		h.answer(r, done(warning(running, s, differs)))
		h.after(s.effect.FetchDelay, func() { h.inTurn(s) })
	})
}

func warning(running *component, s scaling, differs bool) string {
	switch {
	case !differs:
		return ""
	case s.mayUpdate:
		return fmt.Sprintf("Requested to scale existing component, with a changed image reference: %s != %s. "+
			"The component will be scaled, and the image reference will be updated afterwards.", running.image, s.image)
	}
	return fmt.Sprintf("Requested to scale existing component to a different image reference: %s != %s. "+
		"The component will be scaled but the image reference will not be updated. "+
		"If you meant to update this component to a new image ref, use the update command.", running.image, s.image)
}

// overtakenFor is how long a scale that is to be overtaken waits for the next.
const overtakenFor = time.Second

// inTurn executes a scale and those that it overtakes.
func (h *Host) inTurn(s scaling) {
	if s.effect.Overtaken {
		executed := false
		once := func() {
			if !executed {
				executed = true
				h.scaleFetched(s)
			}
		}
		h.overtaken[s.id] = append(h.overtaken[s.id], once)
		h.after(overtakenFor, once)
		return
	}
	h.scaleFetched(s)
	behind := h.overtaken[s.id]
	delete(h.overtaken, s.id)
	for _, execute := range behind {
		execute()
	}
}

// scaleFetched goes on after the fetch. That it failed matters to a start only;
// an image that was fetched and is no good matters always.
func (h *Host) scaleFetched(s scaling) {
	fetchFault := fetched(componentKind, s.image, s.effect)
	var claims *Claims
	if fetchFault == "" {
		if s.effect.Invalid != "" {
			h.scaleFailed(s, nil, s.effect.Invalid)
			return
		}
		claims = s.effect.Claims
	}
	if s.effect.Fail != "" {
		h.scaleFailed(s, claims, s.effect.Fail)
		return
	}
	h.componentGate.pass(func() {
		running := h.components[s.id]
		switch {
		case running == nil && s.count == 0:
			h.scaled(claims, s.annotations, s.hostID, s.image, s.id, 0)
		case running == nil:
			h.startComponent(s, claims, fetchFault)
		case s.count == 0:
			delete(h.components, s.id)
			h.scaled(claims, running.annotations, s.hostID, running.image, s.id, 0)
		default:
			h.rescale(s, running, claims)
		}
	})
}

// startComponent publishes component_scaled twice: in its own name, and in that
// of the command.
func (h *Host) startComponent(s scaling, claims *Claims, fetchFault string) {
	config, fault := h.useConfig(s.config, claims != nil)
	switch {
	case fault != "":
	case fetchFault != "":
		fault = fetchFault
	case !isKey("COMPONENT_" + s.id):
		fault = "failed to get component spec: " + illegalKey
	}
	if fault != "" {
		h.scaleFailed(s, claims, fault)
		return
	}
	h.rememberComponent(claims)
	h.l.store.introduce(s.id)
	h.behind(&h.componentGate, s.effect.LockDelay, func() {
		h.scaled(claims, s.annotations, h.id, s.image, s.id, s.count)
		h.components[s.id] = &component{
			image: s.image, runs: s.image, count: s.count, annotations: s.annotations, config: config, claims: claims,
		}
		h.scaled(claims, s.annotations, s.hostID, s.image, s.id, s.count)
	})
}

// behind does something after d, with the gate closed until then.
func (h *Host) behind(g *gate, d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	g.close()
	h.after(d, func() {
		f()
		g.open()
	})
}

// rescale instantiates the running code anew if the count or the list of configs
// is another; the host then takes the command's word for the image. The event
// shows what was before.
func (h *Host) rescale(s scaling, running *component, claims *Claims) {
	before := *running
	if running.count != s.count || !slices.Equal(running.config, s.config) {
		config := running.config
		if !slices.Equal(running.config, s.config) {
			var fault string
			if config, fault = h.useConfig(s.config, claims != nil); fault != "" {
				h.scaleFailed(s, claims, fault)
				return
			}
		}
		h.components[s.id] = &component{
			image: s.image, runs: running.runs, count: s.count, annotations: s.annotations, config: config, claims: running.claims,
		}
	}
	h.scaled(claims, before.annotations, s.hostID, before.image, s.id, s.count)
	if s.mayUpdate {
		h.replaceImage(s.id, s.image, s.hostID, map[string]string{}, s.effect)
	}
}

// update is the command that promises another image.
func (h *Host) update(r *request) {
	f := parse(r.body)
	id, image, hostID := f.text("component_id", ""), f.text("new_component_ref", ""), f.text("host_id", "")
	annotations := f.pairs("annotations", false)
	if f.bad {
		h.answer(r, refused("failed to deserialize component update command"))
		return
	}
	h.componentGate.pass(func() {
		running := h.components[id]
		switch {
		case running == nil:
			h.answer(r, refused("component "+id+" not found"))
		case running.image == image:
			h.answer(r, done("component "+id+" already updated to "+image))
		default:
			h.answer(r, done("component "+id+" updating from "+running.image+" to "+image))
			h.after(r.effect.FetchDelay, func() { h.replaceImage(id, image, hostID, annotations, r.effect) })
		}
	})
}

// replaceImage is what hosts do instead of an update: the new image is reported,
// the new instance stopped, and the old code goes on. Failures are not told.
func (h *Host) replaceImage(id, image, hostID string, annotations map[string]string, e Rule) {
	h.componentGate.pass(func() {
		running := h.components[id]
		if running == nil || running.image == image || fetched(componentKind, image, e) != "" || e.Invalid != "" {
			return
		}
		h.rememberComponent(e.Claims)
		h.components[id] = &component{
			image: image, runs: running.runs, count: running.count, annotations: annotations, config: running.config, claims: e.Claims,
		}
		h.scaled(e.Claims, annotations, hostID, image, id, running.count)
		h.scaled(e.Claims, annotations, hostID, image, id, 0)
	})
}

func (h *Host) scaled(claims *Claims, annotations map[string]string, hostID, image, id string, count uint32) {
	data := map[string]any{
		"annotations": maps.Clone(annotations), "host_id": hostID, "image_ref": image, "max_instances": count, "component_id": id,
	}
	if claims != nil {
		data["public_key"], data["claims"] = claims.Subject, claims.component()
	}
	h.publish("component_scaled", subject{id: id, image: image}, data)
}

func (h *Host) scaleFailed(s scaling, claims *Claims, words string) {
	data := map[string]any{
		"annotations": s.annotations, "component_id": s.id, "host_id": s.hostID, "image_ref": s.image,
		"max_instances": s.count, "error": words,
	}
	if claims != nil {
		data["public_key"] = claims.Subject
	}
	h.publish("component_scale_failed", subject{id: s.id, image: s.image}, data)
}

func (h *Host) rememberComponent(c *Claims) {
	if c == nil {
		return
	}
	h.remember(c, map[string]string{"call_alias": c.Alias, "tags": strings.Join(c.Tags, ",")})
}

// remember puts claims where claims.get finds them; they stay for good.
func (h *Host) remember(c *Claims, more map[string]string) {
	revision := strconv.Itoa(c.Revision)
	claims := map[string]string{
		"issuer": c.Issuer, "iss": c.Issuer, "name": c.Name, "subject": c.Subject, "sub": c.Subject,
		"revision": revision, "rev": revision, "version": c.Version,
	}
	maps.Copy(claims, more)
	h.l.store.claims[c.Subject] = claims
}
