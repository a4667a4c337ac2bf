package lattice

import (
	"errors"
	"fmt"
	"math"
	"time"

	"tidewait/internal/scaler"
)

// wireHost is what ping, inventory and heartbeat have in common.
type wireHost struct {
	Name   string            `json:"friendly_name"`
	Labels map[string]string `json:"labels"`
	// Version is shown and never compared: hosts of any version are welcome.
	Version string `json:"version"`
	Uptime  uint64 `json:"uptime_seconds"`
}

func (w wireHost) uptime() time.Duration {
	return time.Duration(min(w.Uptime, uint64(math.MaxInt64/time.Second))) * time.Second
}

type wireHostInfo struct {
	wireHost
	ID      string `json:"id"`
	Lattice string `json:"lattice"`
}

type wireInventory struct {
	wireHost
	Host       string          `json:"host_id"`
	Components []wireComponent `json:"components"`
	Actors     []wireComponent `json:"actors"` // what old hosts call components
	Providers  []wireProvider  `json:"providers"`
}

type wireComponent struct {
	ID          *string           `json:"id"`
	Name        string            `json:"name"`
	Image       string            `json:"image_ref"`
	Annotations map[string]string `json:"annotations"`
	Count       *uint32           `json:"max_instances"`
}

type wireProvider struct {
	ID          *string           `json:"id"`
	Name        string            `json:"name"`
	Image       string            `json:"image_ref"`
	Annotations map[string]string `json:"annotations"`
}

// inventory reads what a host says that it runs. Of several entries of one id
// the first one counts; entries without instances are none.
func (w wireInventory) inventory() (Inventory, error) {
	inv := Inventory{Host: w.Host, Name: w.Name, Labels: w.Labels, Version: w.Version, Uptime: w.uptime()}
	components := w.Components
	if components == nil {
		components = w.Actors
	}
	seen := map[string]bool{}
	for i, c := range components {
		if c.ID == nil || c.Count == nil {
			return Inventory{}, fmt.Errorf("component %d has no id or max_instances", i)
		}
		if *c.Count > 0 && !seen[*c.ID] {
			inv.Components = append(inv.Components, Entry{ID: *c.ID, Name: c.Name, Image: c.Image, Count: int(*c.Count), Annotations: c.Annotations})
		}
		seen[*c.ID] = true
	}
	clear(seen)
	for i, p := range w.Providers {
		if p.ID == nil {
			return Inventory{}, fmt.Errorf("provider %d has no id", i)
		}
		if !seen[*p.ID] {
			inv.Providers = append(inv.Providers, Entry{ID: *p.ID, Name: p.Name, Image: p.Image, Count: 1, Annotations: p.Annotations})
		}
		seen[*p.ID] = true
	}
	return inv, nil
}

// wireLink is a link as it is put, answered and published. Lists are never null
// on the wire.
type wireLink struct {
	Source       string   `json:"source_id"`
	Target       string   `json:"target"`
	Name         string   `json:"name"`
	Namespace    string   `json:"wit_namespace"`
	Package      string   `json:"wit_package"`
	Interfaces   []string `json:"interfaces"`
	SourceConfig []string `json:"source_config"`
	TargetConfig []string `json:"target_config"`
}

const defaultLinkName = "default"

func (w wireLink) link() (scaler.Link, error) {
	if w.Source == "" || w.Target == "" || w.Namespace == "" || w.Package == "" {
		return scaler.Link{}, errors.New("a link has no source_id, target, wit_namespace or wit_package")
	}
	l := scaler.Link{
		Source: w.Source, Target: w.Target, Name: w.Name, Namespace: w.Namespace, Package: w.Package,
		Interfaces: w.Interfaces, SourceConfig: w.SourceConfig, TargetConfig: w.TargetConfig,
	}
	if l.Name == "" {
		l.Name = defaultLinkName
	}
	return l, nil
}

func toWire(l scaler.Link) wireLink {
	return wireLink{
		Source: l.Source, Target: l.Target, Name: l.Name, Namespace: l.Namespace, Package: l.Package,
		Interfaces: list(l.Interfaces), SourceConfig: list(l.SourceConfig), TargetConfig: list(l.TargetConfig),
	}
}

func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

func dict(values map[string]string) map[string]string {
	if values == nil {
		return map[string]string{}
	}
	return values
}
