package scaler_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
	"tidewait/internal/scaler"
)

// TestProvidersAreShownWithoutSchemes: hosts of wasmCloud 1.9.2 leave the scheme
// of a provider's reference out of their inventories, and keep a component's.
func TestProvidersAreShownWithoutSchemes(t *testing.T) {
	for _, c := range []struct {
		kind          oam.ComponentType
		wanted, shown string
		same          bool
	}{
		{oam.TypeCapability, "file:///opt/http.par", "/opt/http.par", true},
		{oam.TypeCapability, "oci://r.example.com/http:1", "r.example.com/http:1", true},
		{oam.TypeCapability, "http://r.example.com/http:1", "r.example.com/http:1", true},
		{oam.TypeCapability, "https://r.example.com/http:1", "r.example.com/http:1", true},
		{oam.TypeCapability, "wasmcloud+builtin://http-server", "http-server", true},
		{oam.TypeCapability, "r.example.com/http:1", "r.example.com/http:1", true},
		{oam.TypeCapability, "r.example.com/http:2", "r.example.com/http:1", false},
		{oam.TypeComponent, "file:///opt/api.wasm", "file:///opt/api.wasm", true},
		{oam.TypeComponent, "file:///opt/api.wasm", "/opt/api.wasm", false},
	} {
		m := oam.Manifest{Metadata: oam.Metadata{Name: "shop"}, Spec: oam.Specification{Components: []oam.Component{{
			Name: "it", Type: c.kind, Properties: oam.Properties{Image: c.wanted},
			Traits: []oam.Trait{{Type: oam.TraitSpreadScaler, Spread: &oam.Spread{Instances: 1}}},
		}}}}
		desired := scaler.List(m)
		there := scaler.Instances{ID: "shop-it", Image: c.shown, Count: 1, Annotations: map[string]string{
			scaler.AnnotationManagedBy: "wadm", scaler.AnnotationApp: "shop",
			scaler.AnnotationScaler: desired[0].ID, scaler.AnnotationSpread: "default",
		}}
		host := scaler.Host{ID: "N1"}
		if c.kind == oam.TypeCapability {
			host.Providers = []scaler.Instances{there}
		} else {
			host.Components = []scaler.Instances{there}
		}
		out := scaler.Plan(scaler.Input{App: "shop", Lattice: "east", Desired: desired, State: scaler.State{Hosts: []scaler.Host{host}}, Now: noon})
		require.Equal(t, c.same, len(out.Batches) == 0, "%s shown as %s: %+v", c.wanted, c.shown, out.Batches)
	}
}
