package simhost

import (
	"maps"
	"slices"
	"strings"
)

// Link is a link as the store holds it and the wire shows it.
type Link struct {
	Source       string   `json:"source_id"`
	Target       string   `json:"target"`
	Name         string   `json:"name"`
	Namespace    string   `json:"wit_namespace"`
	Package      string   `json:"wit_package"`
	Interfaces   []string `json:"interfaces"`
	SourceConfig []string `json:"source_config"`
	TargetConfig []string `json:"target_config"`
}

// store is what the hosts of a lattice share in JetStream.
type store struct {
	configs map[string]map[string]string
	specs   map[string][]Link // of every component and provider that was started or linked
	claims  map[string]map[string]string

	changed string // the source that was written last
	before  []Link // and its links before
}

func newStore() store {
	return store{configs: map[string]map[string]string{}, specs: map[string][]Link{}, claims: map[string]map[string]string{}}
}

// write replaces the links of a source.
func (s *store) write(source string, links []Link) {
	s.changed, s.before = source, s.specs[source]
	s.specs[source] = links
}

// introduce makes sure that a component or provider has a specification.
func (s *store) introduce(id string) {
	if _, is := s.specs[id]; !is {
		s.specs[id] = []Link{}
	}
}

// links returns all links; stale ones are those before the last write.
func (s *store) links(stale bool) []Link {
	all := []Link{}
	for _, source := range slices.Sorted(maps.Keys(s.specs)) {
		if stale && source == s.changed {
			all = append(all, s.before...)
			continue
		}
		all = append(all, s.specs[source]...)
	}
	return all
}

// secretPrefix begins the names of configs that refer to secrets.
const secretPrefix = "SECRET"

func (h *Host) getConfig(r *request) {
	if !isKey(r.name()) {
		h.answer(r, refused(illegalKey))
		return
	}
	values, is := h.l.store.configs[r.name()]
	if !is {
		h.answer(r, done("Configuration not found"))
		return
	}
	h.answer(r, found(values))
}

func (h *Host) putConfig(r *request) {
	values, ok := parsePairs(r.body)
	switch {
	case !ok:
		h.answer(r, refused("config data should be a map of string -> string"))
	case !isKey(r.name()):
		h.answer(r, refused("unable to store config data"))
	default:
		h.l.store.configs[r.name()] = values
		h.publish("config_set", subject{id: r.name()}, map[string]any{"config_name": r.name()})
		h.answer(r, done("successfully put config"))
	}
}

func (h *Host) deleteConfig(r *request) {
	if !isKey(r.name()) {
		h.answer(r, refused("Unable to delete config data"))
		return
	}
	delete(h.l.store.configs, r.name())
	h.publish("config_deleted", subject{id: r.name()}, map[string]any{"config_name": r.name()})
	h.answer(r, done("successfully deleted config"))
}

// useConfig returns the names of a list that are no secrets, or why something
// cannot start with the list. A config that the host has used once is known to
// it for good, even when it has been deleted.
func (h *Host) useConfig(names []string, signed bool) (plain []string, fault string) {
	plain = []string{}
	var secrets []string
	for _, name := range names {
		if strings.HasPrefix(name, secretPrefix) {
			secrets = append(secrets, name)
			continue
		}
		plain = append(plain, name)
	}
	for _, name := range plain {
		if fault := h.missing(name); fault != "" {
			return nil, "Unable to fetch requested config: " + fault
		}
		h.known[name] = true
	}
	if fault := h.missingSecret(secrets, signed); fault != "" {
		return nil, "Unable to fetch requested secrets: " + fault
	}
	return plain, ""
}

func (h *Host) missing(config string) (fault string) {
	_, exists := h.l.store.configs[config]
	switch {
	case h.known[config]:
		return ""
	case !isKey(config):
		return "Error fetching config " + config + ": " + illegalKey
	case !exists:
		return "Config " + config + " does not exist"
	}
	return ""
}

func (h *Host) missingSecret(names []string, signed bool) (fault string) {
	switch {
	case len(names) == 0:
		return ""
	case !h.spec.Secrets:
		return "secret store not configured, could not fetch secrets"
	case !signed:
		return "entity did not have an embedded JWT, required to fetch secrets (was this entity signed during build?)"
	}
	for _, name := range names {
		if _, exists := h.l.store.configs[name]; !exists {
			return "Secret config " + name + " not found in config store, could not create secret request"
		}
	}
	return ""
}

func (h *Host) getClaims(r *request) {
	claims := []map[string]string{}
	for _, subject := range slices.Sorted(maps.Keys(h.l.store.claims)) {
		claims = append(claims, h.l.store.claims[subject])
	}
	h.answer(r, found(claims))
}
