package simhost

import (
	"slices"
	"strings"
)

func (h *Host) getLinks(r *request) {
	h.answer(r, found(h.l.store.links(r.effect.Stale)))
}

// putLink reads the links of a source, changes them, and writes them back. What
// somebody else has written in between is lost, and nobody is told.
func (h *Host) putLink(r *request) {
	link, ok := parseLink(r.body)
	if !ok {
		h.answer(r, refused("failed to deserialize wrpc link definition"))
		return
	}
	if fault := h.invalidConfig(slices.Concat(link.SourceConfig, link.TargetConfig)); fault != "" {
		h.refuseLink(r, link, fault, "")
		return
	}
	if !isKey("COMPONENT_" + link.Source) {
		h.refuseLink(r, link, "failed to get component spec", ": "+illegalKey)
		return
	}
	links := slices.Clone(h.l.store.specs[link.Source])
	if slices.ContainsFunc(links, link.contradicts) {
		h.refuseLink(r, link, "link already exists with different target, consider deleting the existing link or using a different link name", "")
		return
	}
	if at := slices.IndexFunc(links, link.replaces); at >= 0 {
		links[at] = link
	} else {
		links = append(links, link)
	}
	h.after(r.effect.WriteDelay, func() {
		h.l.store.write(link.Source, links)
		h.publish("linkdef_set", subject{id: link.Source}, link)
		h.answer(r, done("successfully set link"))
	})
}

// refuseLink tells why a link is not put; the event knows the causes too.
func (h *Host) refuseLink(r *request, link Link, words, causes string) {
	failure := struct {
		Link
		Error string `json:"error"`
	}{link, words + causes}
	h.publish("linkdef_set_failed", subject{id: link.Source}, failure)
	h.answer(r, refused(words))
}

func (h *Host) invalidConfig(names []string) (fault string) {
	var faults strings.Builder
	for _, name := range names {
		_, exists := h.l.store.configs[name]
		switch {
		case !isKey(name):
			faults.WriteString(illegalKey + ". ")
		case exists:
		case strings.HasPrefix(name, secretPrefix):
			faults.WriteString("Secret reference " + name + " not found in config store. ")
		default:
			faults.WriteString("Configuration " + name + " not found in config store. ")
		}
	}
	if faults.Len() == 0 {
		return ""
	}
	return "Failed to validate configuration and secrets. " + faults.String()
}

// sameUse says whether two links of a source are for one package under one name.
func (k Link) sameUse(o Link) bool {
	return k.Source == o.Source && k.Namespace == o.Namespace && k.Package == o.Package && k.Name == o.Name
}

func (k Link) replaces(o Link) bool { return k.sameUse(o) && k.Target == o.Target }

func (k Link) contradicts(o Link) bool {
	shared := func(i string) bool { return slices.Contains(k.Interfaces, i) }
	return k.sameUse(o) && k.Target != o.Target && slices.ContainsFunc(o.Interfaces, shared)
}

// deleteLink deletes the first link of a source for a package under a name,
// whatever its target.
func (h *Host) deleteLink(r *request) {
	f := parse(r.body)
	key := Link{Source: f.must("source_id"), Name: f.text("name", "default"), Namespace: f.must("wit_namespace"), Package: f.must("wit_package")}
	if f.bad {
		h.answer(r, refused("failed to deserialize wrpc link definition"))
		return
	}
	if !isKey("COMPONENT_" + key.Source) {
		h.answer(r, refused("failed to get component spec"))
		return
	}
	links, known := h.l.store.specs[key.Source]
	if !known {
		h.answer(r, done("successfully deleted link (spec doesn't exist)"))
		return
	}
	event := map[string]any{"source_id": key.Source, "name": key.Name, "wit_namespace": key.Namespace, "wit_package": key.Package}
	at := slices.IndexFunc(links, key.sameUse)
	if at < 0 {
		h.publish("linkdef_deleted", subject{id: key.Source}, event)
		h.answer(r, done("successfully deleted link"))
		return
	}
	event["target"], event["interfaces"] = links[at].Target, links[at].Interfaces
	links = slices.Clone(links)
	links[at] = links[len(links)-1]
	links = links[:len(links)-1]
	h.after(r.effect.WriteDelay, func() {
		h.l.store.write(key.Source, links)
		h.publish("linkdef_deleted", subject{id: key.Source}, event)
		h.answer(r, done("successfully deleted link"))
	})
}

func parseLink(body []byte) (Link, bool) {
	f := parse(body)
	k := Link{
		Source: f.must("source_id"), Target: f.must("target"), Name: f.text("name", "default"),
		Namespace: f.must("wit_namespace"), Package: f.must("wit_package"), Interfaces: f.texts("interfaces", true),
		SourceConfig: f.texts("source_config", false), TargetConfig: f.texts("target_config", false),
	}
	return k, !f.bad
}
