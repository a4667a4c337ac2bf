package oam_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
)

func TestComponentID(t *testing.T) {
	for _, want := range []struct{ app, component, explicit, id string }{
		{"mymodel", "echo", "myid", "myid"},
		{"mymodel", "echo-component", "", "mymodel-echo_component"},
		{"some model name with spaces cause yaml", "echo", "", "some_model_name_with_spaces_cause_yaml-echo"},
		{"My ThInG", "thing.wasm", "", "my_thing-thing_wasm"},
		{"shop-front", "api", "", "shop_front-api"},
		{"shop-front", "api", "Shop.Api", "Shop.Api"},
		{"", "", "", "-"},
		{"a--b", "c__d", "", "a__b-c__d"},
		{"Größe", "naïve", "", "gr__e-na_ve"},
		{"İx", "Σίσυφος", "", "i_x-_______"}, // İ becomes two characters in lower case
		{"\u212Aelvin", "\u212Bngström", "", "kelvin-_ngstr_m"},
		{"日本", "😀", "", "__-_"},
	} {
		require.Equal(t, want.id, oam.ComponentID(want.app, want.component, want.explicit))
	}
}

func TestNamesOfConfigsAndSecrets(t *testing.T) {
	require.Equal(t, "shop_front-api_settings", oam.ConfigName("shop-front", oam.Config{Name: "api-settings", Properties: map[string]string{"a": "b"}}))
	require.Equal(t, "shop_front-api_settings", oam.ConfigName("shop-front", oam.Config{Name: "api-settings", Properties: map[string]string{}}))
	require.Equal(t, "platform-defaults", oam.ConfigName("shop-front", oam.Config{Name: "platform-defaults"}))
	require.Equal(t, "SECRET_shop_front-db_password", oam.SecretName("shop-front", "db-password"))
}

func TestFacts(t *testing.T) {
	m := parse(t, "apiVersion: a\nkind: k\nmetadata: {name: My-App, annotations: {experimental.wasmcloud.dev/shared: 'true'}}\nspec:\n  components:\n"+
		provider("Kv.Store", "image: i")+provider("x", "application: {name: other, component: y}")+component("api", "")+
		"  - {name: z, type: component, properties: {application: {name: other, component: z}}}\n"+provider("same", "image: i, id: my_app-api"), oam.YAML).Manifest
	require.Equal(t, oam.Facts{
		Shared:     true,
		Components: map[string]oam.ComponentType{"Kv.Store": "capability", "api": "component", "same": "capability"},
		IDs:        []string{"my_app-api", "my_app-kv_store"},
		Explicit:   map[string]string{"same": "my_app-api"},
		References: []oam.Reference{
			{Application: "other", Component: "y", Type: "capability"},
			{Application: "other", Component: "z", Type: "component"},
		},
	}, m.Facts())
	require.Equal(t, oam.Facts{}, oam.Manifest{}.Facts())
}

// What a manifest says itself counts, and the one that is resolved is another.
func TestReferencesAreResolved(t *testing.T) {
	m := parse(t, "apiVersion: a\nkind: k\nmetadata: {name: shop}\nspec:\n  components:\n"+
		provider("x", "application: {name: other, component: y}")+
		provider("said", "application: {name: other, component: said}, id: mine")+component("api", ""), oam.YAML).Manifest
	resolved := m.Resolve(map[oam.Reference]string{
		{Application: "other", Component: "y", Type: "capability"}:    "why",
		{Application: "other", Component: "said", Type: "capability"}: "theirs",
		{Application: "other", Component: "api", Type: "component"}:   "stranger",
	})
	ids := func(m oam.Manifest) (all []string) {
		for _, c := range m.Spec.Components {
			all = append(all, c.Properties.ID)
		}
		return all
	}
	require.Equal(t, []string{"why", "mine", ""}, ids(resolved))
	require.Equal(t, []string{"", "mine", ""}, ids(m))
	require.Equal(t, []string{"", "mine", ""}, ids(m.Resolve(nil)))
}

func TestSharedIsExactlyTrue(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "True": false, "1": false, "": false, "false": false} {
		m := oam.Manifest{Metadata: oam.Metadata{Annotations: map[string]string{oam.AnnotationShared: value}}}
		require.Equal(t, want, m.Shared(), value)
	}
}

func TestVersionAndDescription(t *testing.T) {
	m := oam.Manifest{}
	require.Empty(t, m.Version())
	require.Nil(t, m.Description())
	with := m.WithVersion("v1")
	require.Equal(t, "v1", with.Version())
	require.Nil(t, m.Metadata.Annotations)
	again := with.WithVersion("v2")
	require.Equal(t, "v1", with.Version())
	require.Equal(t, map[string]string{"version": "v2"}, again.Metadata.Annotations)
	with.Metadata.Annotations[oam.AnnotationDescription] = "d"
	require.Equal(t, "d", *with.Description())
	require.Equal(t, "default", oam.Link{}.LinkName())
	require.Equal(t, "n", oam.Link{Name: "n"}.LinkName())
}
