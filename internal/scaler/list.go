package scaler

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"tidewait/internal/oam"
	"tidewait/internal/wadm"
)

// List returns the scalers of a manifest: component by component, trait by
// trait, in the order in which statuses show them. A provider without a scaler
// of its own gets one that keeps a single instance, behind its links. What
// belongs to a shared application contributes links and nothing else.
//
// Of a document that is not valid, what can be understood is listed.
func List(m oam.Manifest) []Scaler {
	a := application{manifest: m, name: m.Metadata.Name}
	var list []Scaler
	for _, c := range m.Spec.Components {
		list = append(list, a.scalers(c)...)
	}
	return list
}

// Rows returns the scalers of a manifest as rows of a status that is still to be
// filled in, in the order of [List].
func Rows(m oam.Manifest) []wadm.ScalerStatus {
	list := List(m)
	rows := make([]wadm.ScalerStatus, len(list))
	for i, s := range list {
		rows[i] = wadm.ScalerStatus{ID: s.ID, Kind: s.Kind, Name: s.Name}
	}
	return rows
}

// application is a manifest while it is turned into scalers.
type application struct {
	manifest oam.Manifest
	name     string
}

func (a application) scalers(c oam.Component) []Scaler {
	var list []Scaler
	scaled := false
	for _, t := range c.Traits {
		switch {
		case t.Link != nil && t.Type == oam.TraitLink:
			if target, ok := a.linkTarget(c, t.Link.Target.Name); ok {
				list = append(list, a.link(c, target, *t.Link))
			}
		case t.Spread != nil && t.Type == oam.TraitSpreadScaler && c.Properties.Image != "":
			list = append(list, a.workload(KindSpread, c, *t.Spread))
			scaled = true
		case t.Spread != nil && t.Type == oam.TraitDaemonScaler && c.Properties.Image != "":
			list = append(list, a.workload(KindDaemon, c, *t.Spread))
			scaled = true
		}
	}
	if c.Type == oam.TypeCapability && c.Properties.Image != "" && !scaled {
		list = append(list, a.workload(KindSpread, c, oam.Spread{Instances: 1}))
	}
	return list
}

// linkTarget finds the first entry that a link of source can lead to. A provider
// leads to components only.
func (a application) linkTarget(source oam.Component, name string) (oam.Component, bool) {
	i := slices.IndexFunc(a.manifest.Spec.Components, func(c oam.Component) bool {
		return c.Name == name && (source.Type != oam.TypeCapability || c.Type != oam.TypeCapability)
	})
	if i < 0 {
		return oam.Component{}, false
	}
	return a.manifest.Spec.Components[i], true
}

func (a application) workload(kind string, c oam.Component, s oam.Spread) Scaler {
	needs, names := a.configs(c.Properties.Config, c.Properties.Secrets)
	w := Workload{
		Type: c.Type, ID: a.id(c), Image: c.Properties.Image, Config: names,
		Instances: s.Instances, Spread: s.Spread,
	}
	return Scaler{
		ID:   hash([]string{kind, a.name, c.Name, w.ID, w.Image}, names),
		Kind: kind, Name: w.ID, App: a.name, Workload: &w, Needs: needs,
	}
}

func (a application) link(source, target oam.Component, l oam.Link) Scaler {
	var at oam.ConfigDefinition
	if l.Source != nil {
		at = *l.Source
	}
	needs, sourceConfig := a.configs(at.Config, at.Secrets)
	targetNeeds, targetConfig := a.configs(l.Target.Config, l.Target.Secrets)
	link := Link{
		Source: a.id(source), Target: a.id(target),
		Name: l.LinkName(), Namespace: l.Namespace, Package: l.Package, Interfaces: l.Interfaces,
		SourceConfig: sourceConfig, TargetConfig: targetConfig,
	}
	owner, _ := a.home(source)
	return Scaler{
		ID: hash([]string{KindLink, owner, link.Name, link.Source, link.Target, link.Namespace, link.Package},
			link.Interfaces, sourceConfig, targetConfig),
		Kind: KindLink,
		Name: link.Source + " -(" + link.Namespace + ":" + link.Package + ")-> " + link.Target,
		App:  a.name, Link: &link, Needs: append(needs, targetNeeds...),
	}
}

// home returns the application and the component that an entry stands for, which
// are another's for a component of a shared application.
func (a application) home(c oam.Component) (app, component string) {
	if ref := c.Properties.Application; ref != nil && c.Properties.Image == "" {
		return ref.Name, ref.Component
	}
	return a.name, c.Name
}

func (a application) id(c oam.Component) string {
	app, component := a.home(c)
	return oam.ComponentID(app, component, c.Properties.ID)
}

// configs returns the configurations and references to secrets that something
// needs, and their names in the order hosts get them.
func (a application) configs(configs []oam.Config, secrets []oam.Secret) (needs []Config, names []string) {
	for _, c := range configs {
		needs = append(needs, Config{Name: oam.ConfigName(a.name, c), Managed: c.Managed(), Values: c.Properties})
	}
	for _, s := range secrets {
		needs = append(needs, a.secret(s))
	}
	for _, c := range needs {
		names = append(names, c.Name)
	}
	return needs, names
}

// hash is the id of what the parts, one after the other, say.
func hash(parts ...[]string) string {
	h := sha256.New()
	for _, part := range parts {
		for _, s := range part {
			h.Write([]byte(s))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
