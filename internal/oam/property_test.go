package oam_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/oam"
)

// TestAnyManifestRoundTrips writes and reads any manifest there can be, and
// writes it again.
func TestAnyManifestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genManifest.Draw(t, "manifest")

		inJSON, err := want.JSON()
		require.NoError(t, err)
		fromJSON, err := oam.Parse(inJSON, oam.JSON)
		require.NoError(t, err, string(inJSON))
		require.Equal(t, want, fromJSON.Manifest)
		again, err := fromJSON.Manifest.JSON()
		require.NoError(t, err)
		require.Equal(t, string(inJSON), string(again))

		marshalled, err := json.Marshal(want)
		require.NoError(t, err)
		var unmarshalled oam.Manifest
		require.NoError(t, json.Unmarshal(marshalled, &unmarshalled))
		require.Equal(t, want, unmarshalled)

		inYAML, err := want.YAML()
		require.NoError(t, err)
		fromYAML, err := oam.Parse(inYAML, oam.YAML)
		require.NoError(t, err, string(inYAML))
		require.Equal(t, want, fromYAML.Manifest, string(inYAML))

		detected, err := oam.Parse(inJSON, oam.Detect)
		require.NoError(t, err)
		require.Equal(t, want, detected.Manifest)
	})
}

// TestValidatingIsAboutTheManifest finds the same of a manifest however it was
// written, and without a text.
func TestValidatingIsAboutTheManifest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genManifest.Draw(t, "manifest")
		want := (&oam.Document{Manifest: m}).Validate()

		inJSON, err := m.JSON()
		require.NoError(t, err)
		fromJSON, err := oam.Parse(inJSON, oam.JSON)
		require.NoError(t, err)
		inYAML, err := m.YAML()
		require.NoError(t, err)
		fromYAML, err := oam.Parse(inYAML, oam.YAML)
		require.NoError(t, err)
		for _, document := range []*oam.Document{fromJSON, fromYAML} {
			got := document.Validate()
			require.Len(t, got, len(want))
			for i := range got {
				require.Positive(t, got[i].Line)
				require.Positive(t, got[i].Column)
				got[i].Line, got[i].Column = 0, 0
				require.Equal(t, want[i], got[i])
			}
		}
	})
}

// TestIDsAreTokens: what follows from names can be an id.
func TestIDsAreTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		require.Regexp(t, `^[a-z0-9_]*-[a-z0-9_]*$`, oam.ComponentID(genText.Draw(t, "app"), genText.Draw(t, "component"), ""))
	})
}

var (
	// genText is any text, and such that YAML could take for something else.
	genText = rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`[a-z][-a-z0-9]{0,8}`),
		rapid.StringMatching(`[-+]?(0[xob]?)?[0-9._e]{1,5}`),
		rapid.StringMatching(`[ \n\t:#'"|>&*!%@,\[\]{}?a\\-]{0,12}`),
		rapid.SampledFrom([]string{
			"", "~", "null", "Null", "true", "False", "yes", "off", "n", ".inf", "-.INF", ".nan", "<<", "=", "2024-01-31", "12:30:45", "0o17", "1_000", "---", "...",
			"\x00", "\x7f", "\u0085", "\u2028", "\ufeff", "\ufeffa", " a", "a ", "\n", "\n\n a", "a\n\n", "\ta", "a\n\tb", "\r", "a\r\nb", "😀", "\ufffd", "<&>", "\\u0041", "# a", "a: b",
		}),
	)
	genName     = rapid.SampledFrom([]string{"a", "b", "c", "A.b", "a-b", "a_b", "link", "default", ""})
	genTexts    = rapid.MapOfN(genText, genText, 1, 3)
	genOptional = rapid.OneOf(rapid.Just(map[string]string(nil)), genTexts)

	genConfig = rapid.Custom(func(t *rapid.T) oam.Config {
		return oam.Config{
			Name:       rapid.OneOf(genName, genText).Draw(t, "name"),
			Properties: rapid.OneOf(genOptional, rapid.Just(map[string]string{})).Draw(t, "properties"),
		}
	})
	genSecret = rapid.Custom(func(t *rapid.T) oam.Secret {
		return oam.Secret{Name: genName.Draw(t, "name"), Properties: oam.SecretProperties{
			Policy: genName.Draw(t, "policy"), Key: genText.Draw(t, "key"), Field: genText.Draw(t, "field"), Version: genText.Draw(t, "version"),
		}}
	})
	genComponentType = rapid.SampledFrom([]oam.ComponentType{oam.TypeComponent, oam.TypeCapability})
	genImage         = rapid.SampledFrom([]string{"", "i", "file:///x", "a b", "registry.example.com/a:1"})
	genTraitType     = rapid.SampledFrom([]string{"link", "spreadscaler", "daemonscaler", "linkdef", "mine", "", "5"})
)

func genList[T any](g *rapid.Generator[T], most int) *rapid.Generator[[]T] {
	return rapid.Map(rapid.SliceOfN(g, 0, most), func(items []T) []T {
		if len(items) == 0 {
			return nil
		}
		return items
	})
}

var genManifest = rapid.Custom(func(t *rapid.T) oam.Manifest {
	return oam.Manifest{
		APIVersion: rapid.OneOf(rapid.Just("core.oam.dev/v1beta1"), genText).Draw(t, "apiVersion"),
		Kind:       rapid.OneOf(rapid.Just("Application"), genText).Draw(t, "kind"),
		Metadata: oam.Metadata{
			Name: rapid.OneOf(genName, genText).Draw(t, "name"), Annotations: genOptional.Draw(t, "annotations"), Labels: genOptional.Draw(t, "labels"),
		},
		Spec: oam.Specification{
			Components: rapid.SliceOfN(genComponent, 0, 4).Draw(t, "components"),
			Policies:   genList(genPolicy, 2).Draw(t, "policies"),
		},
	}
})

var genPolicy = rapid.Custom(func(t *rapid.T) oam.Policy {
	return oam.Policy{
		Name: genName.Draw(t, "name"), Type: rapid.OneOf(rapid.Just(oam.SecretPolicyType), genText).Draw(t, "type"),
		Properties: rapid.OneOf(genTexts, rapid.Just(map[string]string{})).Draw(t, "properties"),
	}
})

var genComponent = rapid.Custom(func(t *rapid.T) oam.Component {
	c := oam.Component{
		Name: rapid.OneOf(genName, genText).Draw(t, "name"), Type: genComponentType.Draw(t, "type"),
		Properties: oam.Properties{
			Image: genImage.Draw(t, "image"), ID: rapid.OneOf(genName, genText).Draw(t, "id"),
			Config: genList(genConfig, 2).Draw(t, "config"), Secrets: genList(genSecret, 2).Draw(t, "secrets"),
		},
		Traits: rapid.OneOf(rapid.Just([]oam.Trait(nil)), rapid.SliceOfN(genTrait, 0, 3)).Draw(t, "traits"),
	}
	if rapid.Bool().Draw(t, "shared") {
		c.Properties.Application = &oam.SharedRef{Name: genName.Draw(t, "application"), Component: genName.Draw(t, "component")}
	}
	return c
})

var genTrait = rapid.Custom(func(t *rapid.T) oam.Trait {
	trait := oam.Trait{Type: genTraitType.Draw(t, "type")}
	switch rapid.SampledFrom([]string{"link", "scaler", "other"}).Draw(t, "shape") {
	case "link":
		trait.Link = new(genLink.Draw(t, "link"))
	case "scaler":
		trait.Spread = new(genSpread.Draw(t, "spread"))
	default:
		trait.Custom = genCustom.Draw(t, "custom")
	}
	return trait
})

var genLink = rapid.Custom(func(t *rapid.T) oam.Link {
	link := oam.Link{
		Name: genName.Draw(t, "name"), Namespace: rapid.SampledFrom([]string{"wasi", "wrpc", "own"}).Draw(t, "namespace"),
		Package:    rapid.SampledFrom([]string{"keyvalue", "http", "own"}).Draw(t, "package"),
		Interfaces: rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom([]string{"store", "atomics"}), genText), 0, 2).Draw(t, "interfaces"),
		Target: oam.Target{
			Name:   rapid.OneOf(genName, genText).Draw(t, "target"),
			Config: genList(genConfig, 2).Draw(t, "target config"), Secrets: genList(genSecret, 1).Draw(t, "target secrets"),
		},
	}
	if rapid.Bool().Draw(t, "has source") {
		link.Source = &oam.ConfigDefinition{Config: genList(genConfig, 2).Draw(t, "source config"), Secrets: genList(genSecret, 1).Draw(t, "source secrets")}
	}
	return link
})

var genSpread = rapid.Custom(func(t *rapid.T) oam.Spread {
	return oam.Spread{
		Instances: rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 1<<31-1)).Draw(t, "instances"),
		Spread: genList(rapid.Custom(func(t *rapid.T) oam.SpreadTarget {
			return oam.SpreadTarget{
				Name: genText.Draw(t, "name"), Requirements: genOptional.Draw(t, "requirements"),
				Weight: rapid.OneOf(rapid.Just((*int)(nil)), rapid.Ptr(rapid.IntRange(0, 1<<31-1), false), rapid.Ptr(rapid.Just(0), false)).Draw(t, "weight"),
			}
		}), 3).Draw(t, "spread"),
	}
})

// genCustom is properties that are neither a link's nor a scaler's, in JSON as
// encoding/json writes it.
var genCustom = rapid.Custom(func(t *rapid.T) json.RawMessage {
	value := rapid.OneOf(
		genAny(2),
		rapid.Map(genAny(1), func(v any) any { return map[string]any{"namespace": "a", "package": "b", "target": v} }),
		rapid.Map(genText, func(name string) any { return map[string]any{"instances": "1", "target": map[string]any{"name": name}} }),
	).Draw(t, "properties")
	text, err := json.Marshal(value)
	require.NoError(t, err)
	var trait oam.Trait
	require.NoError(t, json.Unmarshal(append(append([]byte(`{"type":"link","properties":`), text...), '}'), &trait))
	if trait.Custom == nil { // a list with one number is a scaler
		return json.RawMessage("null")
	}
	return trait.Custom
})

func genAny(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Map(genText, func(s string) any { return s }),
		rapid.Map(rapid.Int64(), func(i int64) any { return i }),
		rapid.Map(rapid.Float64Range(-1e300, 1e300), func(f float64) any { return f }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just(any(nil)),
	}
	if depth > 0 {
		scalars = append(scalars,
			rapid.Map(rapid.SliceOfN(genAny(depth-1), 0, 3), func(items []any) any { return items }),
			rapid.Map(rapid.MapOfN(genText, genAny(depth-1), 0, 3), func(fields map[string]any) any { return fields }))
	}
	return rapid.OneOf(scalars...)
}
