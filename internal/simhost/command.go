package simhost

import (
	"strings"

	"github.com/nats-io/nats.go"
)

// request is a command that a host works on.
type request struct {
	command string   // category and verb
	tokens  []string // of the subject, behind the lattice
	body    []byte
	reply   string // where the answer goes; empty: nowhere
	effect  Rule
}

// route is a command and the number of tokens it takes.
type route struct {
	command string
	tokens  int
}

// routes are the commands that hosts know. What else comes in on the subjects
// that they are subscribed to is unsupported.
var routes = map[route]func(*Host, *request){
	{"component.auction", 2}: (*Host).auctionComponent,
	{"component.scale", 3}:   (*Host).scale,
	{"component.update", 3}:  (*Host).update,
	{"provider.auction", 2}:  (*Host).auctionProvider,
	{"provider.start", 3}:    (*Host).startProvider,
	{"provider.stop", 3}:     (*Host).stopProvider,
	{"host.get", 3}:          (*Host).getInventory,
	{"host.ping", 2}:         (*Host).ping,
	{"host.stop", 3}:         (*Host).stopByCommand,
	{"claims.get", 2}:        (*Host).getClaims,
	{"link.get", 2}:          (*Host).getLinks,
	{"link.put", 2}:          (*Host).putLink,
	{"link.del", 2}:          (*Host).deleteLink,
	{"label.put", 3}:         (*Host).putLabel,
	{"label.del", 3}:         (*Host).deleteLabel,
	{"registry.put", 2}:      (*Host).putRegistries,
	{"config.get", 3}:        (*Host).getConfig,
	{"config.put", 3}:        (*Host).putConfig,
	{"config.del", 3}:        (*Host).deleteConfig,
}

// command works on a message.
func (h *Host) command(m *nats.Msg) {
	tokens := strings.Split(strings.TrimPrefix(m.Subject, h.l.ctl), ".")
	r := &request{tokens: tokens, body: m.Data, reply: m.Reply, command: strings.Join(tokens[:min(2, len(tokens))], ".")}
	id, image := r.about()
	h.l.record.add(Call{
		Time: h.l.opts.Clock.Now(), Host: h.id, Command: r.command, ID: id, Image: image, Body: m.Data,
	}, h.l.opts.Record)
	r.effect = h.l.effects(subject{command: r.command, host: h, id: id, image: image})
	handle, known := routes[route{r.command, len(tokens)}]
	switch {
	case r.effect.Ignore:
	case r.effect.Refuse != "":
		h.answer(r, refused(r.effect.Refuse))
	case !known:
		h.answer(r, refused("unsupported subject"))
	default:
		handle(h, r)
	}
}

// about returns what a command is about, as far as its body says so.
func (r *request) about() (id, image string) {
	if strings.HasPrefix(r.command, "config.") {
		return r.name(), ""
	}
	f := parse(r.body)
	for _, key := range []string{"component_id", "provider_id", "source_id", "key"} {
		if id == "" {
			id = f.text(key, "")
		}
	}
	if r.command == "provider.stop" && id == "" {
		return f.text("provider_ref", ""), ""
	}
	for _, key := range []string{"component_ref", "provider_ref", "new_component_ref"} {
		if image == "" {
			image = f.text(key, "")
		}
	}
	return id, image
}

// name is the last token: of a host, or a config.
func (r *request) name() string { return r.tokens[len(r.tokens)-1] }

// answer sends a reply, unless a rule has something else in mind for it.
func (h *Host) answer(r *request, a answer) {
	if r.reply == "" || r.effect.NoAck {
		return
	}
	body := r.effect.Reply
	if body == nil {
		body = encode(a)
	}
	h.after(r.effect.AckDelay, func() { h.send(r.reply, body) })
}
