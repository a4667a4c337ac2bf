package oam_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
)

// traitOf returns the trait of a document as JSON.
func traitOf(t *testing.T, src string) string {
	t.Helper()
	spec := parse(t, src, oam.YAML).Manifest.Spec
	text, err := spec.Components[0].Traits[0].MarshalJSON()
	require.NoError(t, err)
	return string(text)
}

func TestATraitIsWhatItsPropertiesAre(t *testing.T) {
	const link = `"properties":{"namespace":"a","package":"b","interfaces":["c"],"target":{"name":"k"}}}`
	for written, want := range map[string]string{
		// Links, whatever the type.
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k}}":                                                                `{"type":"link",` + link,
		"{type: linkdef, properties: {namespace: a, package: b, interfaces: [c], target: k}}":                                                             `{"type":"linkdef",` + link,
		"{type: spreadscaler, properties: {namespace: a, package: b, interfaces: [c], target: k, instances: 1}}":                                          `{"type":"spreadscaler",` + link,
		"{type: link, properties: {namespace: a, package: b, interfaces: []}}":                                                                            `{"type":"link","properties":{"namespace":"a","package":"b","interfaces":[],"target":{"name":""}}}`,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, name: n}}":                                                       `{"type":"link","properties":{"name":"n","namespace":"a","package":"b","interfaces":["c"],"target":{"name":"k"}}}`,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, name: ''}}":                                                      `{"type":"link",` + link,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: {name: k, config: ~, secrets: []}}}":                                `{"type":"link",` + link,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, target_config: ~, source: ~}}":                                   `{"type":"link",` + link,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, source_config: ~}}":                                              `{"type":"link",` + link,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: {name: k}, target_config: [{name: x}]}}":                            `{"type":"link",` + link,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: {name: k}, target_config: 5}}":                                      `{"type":"link",` + link,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, source: {}}}":                                                    `{"type":"link","properties":{"namespace":"a","package":"b","interfaces":["c"],"source":{},"target":{"name":"k"}}}`,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, source: {config: ~}}}":                                           `{"type":"link","properties":{"namespace":"a","package":"b","interfaces":["c"],"source":{},"target":{"name":"k"}}}`,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, source_config: []}}":                                             `{"type":"link","properties":{"namespace":"a","package":"b","interfaces":["c"],"source":{},"target":{"name":"k"}}}`,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, target_config: [{name: x}]}}":                                    `{"type":"link","properties":{"namespace":"a","package":"b","interfaces":["c"],"target":{"name":"k","config":[{"name":"x"}]}}}`,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, source_config: [{name: x}]}}":                                    `{"type":"link","properties":{"namespace":"a","package":"b","interfaces":["c"],"source":{"config":[{"name":"x"}]},"target":{"name":"k"}}}`,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, source_config: [{name: x}], source: {config: [{name: y}]}}}":     `{"type":"link","properties":{"namespace":"a","package":"b","interfaces":["c"],"source":{"config":[{"name":"y"}]},"target":{"name":"k"}}}`,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: {name: k, secrets: [{name: s, properties: {policy: p, key: q}}]}}}": `{"type":"link","properties":{"namespace":"a","package":"b","interfaces":["c"],"target":{"name":"k","secrets":[{"name":"s","properties":{"policy":"p","key":"q"}}]}}}`,

		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: {name: k, config: [{name: x, properties: .inf}]}}}": `{"type":"link","properties":{"namespace":"a","package":"b","interfaces":["c"],"target":{"name":"k","config":[{"name":"x"}]}}}`,

		// Scalers, whatever the type.
		"{type: spreadscaler, properties: {instances: 0}}":                                                   `{"type":"spreadscaler","properties":{"instances":0}}`,
		"{type: daemonscaler, properties: {replicas: 2}}":                                                    `{"type":"daemonscaler","properties":{"instances":2}}`,
		"{type: mine, properties: {instances: 3, spread: []}}":                                               `{"type":"mine","properties":{"instances":3}}`,
		"{type: link, properties: {instances: 3}}":                                                           `{"type":"link","properties":{"instances":3}}`,
		"{type: spreadscaler, properties: {instances: 0x10, spread: ~}}":                                     `{"type":"spreadscaler","properties":{"instances":16}}`,
		"{type: spreadscaler, properties: {instances: +5}}":                                                  `{"type":"spreadscaler","properties":{"instances":5}}`,
		"{type: spreadscaler, properties: {instances: 2147483647}}":                                          `{"type":"spreadscaler","properties":{"instances":2147483647}}`,
		"{type: spreadscaler, properties: {instances: 1, spread: [{name: a}]}}":                              `{"type":"spreadscaler","properties":{"instances":1,"spread":[{"name":"a"}]}}`,
		"{type: spreadscaler, properties: {instances: 1, spread: [{name: a, requirements: ~, weight: ~}]}}":  `{"type":"spreadscaler","properties":{"instances":1,"spread":[{"name":"a"}]}}`,
		"{type: spreadscaler, properties: {instances: 1, spread: [{name: a, requirements: {}, weight: 0}]}}": `{"type":"spreadscaler","properties":{"instances":1,"spread":[{"name":"a","weight":0}]}}`,

		// Anything else.
		"{type: mine, properties: ~}":                                                                                           `{"type":"mine","properties":null}`,
		"{type: mine, properties: text}":                                                                                        `{"type":"mine","properties":"text"}`,
		"{type: mine, properties: {b: 1, a: 2, b: 3}}":                                                                          `{"type":"mine","properties":{"a":2,"b":3}}`,
		"{type: mine, properties: {instances: 1, x: 2}}":                                                                        `{"type":"mine","properties":{"instances":1,"x":2}}`,
		"{type: mine, properties: {instances: 1.0}}":                                                                            `{"type":"mine","properties":{"instances":1.0}}`,
		"{type: mine, properties: {instances: 9999999999}}":                                                                     `{"type":"mine","properties":{"instances":9999999999}}`,
		"{type: mine, properties: {instances: -1}}":                                                                             `{"type":"mine","properties":{"instances":-1}}`,
		"{type: mine, properties: {instances: '1'}}":                                                                            `{"type":"mine","properties":{"instances":"1"}}`,
		"{type: mine, properties: {instances: 1, replicas: 1}}":                                                                 `{"type":"mine","properties":{"instances":1,"replicas":1}}`,
		"{type: mine, properties: {instances: 1, spread: ~}}":                                                                   `{"type":"mine","properties":{"instances":1,"spread":null}}`,
		"{type: mine, properties: {instances: 1, spread: [{name: a}]}}":                                                         `{"type":"mine","properties":{"instances":1,"spread":[{"name":"a"}]}}`,
		"{type: mine, properties: {namespace: a, package: b, interfaces: [c], source: ~}}":                                      `{"type":"mine","properties":{"interfaces":["c"],"namespace":"a","package":"b","source":null}}`,
		"{type: mine, properties: {namespace: a, package: b, target: k}}":                                                       `{"type":"mine","properties":{"namespace":"a","package":"b","target":"k"}}`,
		"{type: mine, properties: {namespace: 5, package: b, interfaces: c, target: {}}}":                                       `{"type":"mine","properties":{"interfaces":"c","namespace":5,"package":"b","target":{}}}`,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: ~}}":                                      `{"type":"link","properties":{"interfaces":["c"],"namespace":"a","package":"b","target":null}}`,
		"{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, source_config: {a: b}}}":               `{"type":"link","properties":{"interfaces":["c"],"namespace":"a","package":"b","source_config":{"a":"b"},"target":"k"}}`,
		"{type: mine, properties: {a: 0x10, b: +1, c: .5, d: 1., e: 1e5, f: -0, g: .inf, h: .nan, i: '<&>', j: 1e400, k: 010}}": `{"type":"mine","properties":{"a":16,"b":1,"c":0.5,"d":1,"e":1e5,"f":-0,"g":null,"h":null,"i":"<&>","j":"1e400","k":"010"}}`,
		"{type: mine, properties: {5: a, ~: b, true: c}}":                                                                       `{"type":"mine","properties":{"5":"a","true":"c","~":"b"}}`,
	} {
		require.Equal(t, want, traitOf(t, withTrait(written)), written)
	}
}

// TestALinkIsNothingElse holds the inputs that end wadm's process.
func TestALinkIsNothingElse(t *testing.T) {
	const path = "spec.components[0].traits[0].properties."
	for written, want := range map[string]string{
		"namespace: 5, package: b, interfaces: [c], target: k":            path + "namespace: 5 is a number; a string is wanted; write it in quotes",
		"namespace: ~, package: b, interfaces: [c], target: k":            path + "namespace: null stands here; a string is wanted",
		"namespace: a, package: [b], interfaces: [c], target: k":          path + "package: a list stands here; a string is wanted",
		"namespace: a, package: b, interfaces: c, target: k":              path + `interfaces: "c" is a string; a list is wanted`,
		"namespace: a, package: b, interfaces: ~, target: k":              path + "interfaces: null stands here; a list is wanted",
		"namespace: a, package: b, interfaces: {c: d}, target: k":         path + "interfaces: a mapping stands here; a list is wanted",
		"namespace: a, package: b, interfaces: [true], target: k":         path + "interfaces[0]: true is a boolean; a string is wanted; write it in quotes",
		"namespace: a, package: b, interfaces: [c, ~], target: k":         path + "interfaces[1]: null stands here; a string is wanted",
		"namespace: a, package: b, interfaces: [c], target: k, name: ~":   path + "name: null stands here; a string is wanted",
		"namespace: a, package: b, interfaces: [c], target: k, name: 5":   path + "name: 5 is a number; a string is wanted; write it in quotes",
		"namespace: a, package: b, interfaces: [c], target: k, name: [n]": path + "name: a list stands here; a string is wanted",
		"namespace: a, package: b, interfaces: [c], target: k, name: {}":  path + "name: a mapping stands here; a string is wanted",
	} {
		for _, traitType := range []string{"link", "linkdef", "spreadscaler", "mine"} {
			src := withTrait("{type: " + traitType + ", properties: {" + written + "}}")
			require.Contains(t, refused(t, src, oam.YAML), want, written)
		}
	}
}
