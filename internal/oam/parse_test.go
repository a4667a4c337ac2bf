package oam_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
)

const wholeYAML = `
apiVersion: core.oam.dev/v1beta1
kind: Application
metadata:
  name: shop
  annotations:
    version: 1.10
    description: sells things
  labels: {tier: front}
spec:
  policies:
  - name: vault
    type: policy.secret.wasmcloud.dev/v1alpha1
    properties: {backend: v, port: 8200}
  components:
  - name: api
    type: actor
    properties:
      image: registry.example.com/api:1
      id: api-id
      config:
      - name: managed
        properties: {currency: EUR}
      - name: empty
        properties: {}
      - name: external
      secrets:
      - name: password
        properties: {policy: vault, key: db, field: f, version: "3"}
    traits:
    - type: spreadscaler
      properties:
        replicas: 6
        spread:
        - {name: eu, requirements: {region: eu}, weight: 2}
        - {name: any}
    - type: link
      properties:
        namespace: wasi
        package: keyvalue
        interfaces: [store]
        target: kv
        target_config: [{name: endpoint, properties: {url: "redis://kv"}}]
        source_config: [{name: pool}]
    - type: mine
      properties: {b: 1.50, a: [true, null]}
  - name: kv
    type: capability
    properties:
      application: {name: platform, component: redis}
`

const wholeJSON = `{"apiVersion":"core.oam.dev/v1beta1","kind":"Application",` +
	`"metadata":{"name":"shop","annotations":{"description":"sells things","version":"1.10"},"labels":{"tier":"front"}},` +
	`"spec":{"components":[{"name":"api","type":"component","properties":{"image":"registry.example.com/api:1","id":"api-id",` +
	`"config":[{"name":"managed","properties":{"currency":"EUR"}},{"name":"empty","properties":{}},{"name":"external"}],` +
	`"secrets":[{"name":"password","properties":{"policy":"vault","key":"db","field":"f","version":"3"}}]},` +
	`"traits":[{"type":"spreadscaler","properties":{"instances":6,"spread":[{"name":"eu","requirements":{"region":"eu"},"weight":2},{"name":"any"}]}},` +
	`{"type":"link","properties":{"namespace":"wasi","package":"keyvalue","interfaces":["store"],"source":{"config":[{"name":"pool"}]},` +
	`"target":{"name":"kv","config":[{"name":"endpoint","properties":{"url":"redis://kv"}}]}}},` +
	`{"type":"mine","properties":{"a":[true,null],"b":1.50}}]},` +
	`{"name":"kv","type":"capability","properties":{"application":{"name":"platform","component":"redis"}}}],` +
	`"policies":[{"name":"vault","type":"policy.secret.wasmcloud.dev/v1alpha1","properties":{"backend":"v","port":"8200"}}]}}`

func wholeManifest() oam.Manifest {
	return oam.Manifest{
		APIVersion: "core.oam.dev/v1beta1", Kind: "Application",
		Metadata: oam.Metadata{
			Name:        "shop",
			Annotations: map[string]string{"version": "1.10", "description": "sells things"},
			Labels:      map[string]string{"tier": "front"},
		},
		Spec: oam.Specification{
			Policies: []oam.Policy{{
				Name: "vault", Type: "policy.secret.wasmcloud.dev/v1alpha1", Properties: map[string]string{"backend": "v", "port": "8200"},
			}},
			Components: []oam.Component{{
				Name: "api", Type: oam.TypeComponent,
				Properties: oam.Properties{
					Image: "registry.example.com/api:1", ID: "api-id",
					Config: []oam.Config{
						{Name: "managed", Properties: map[string]string{"currency": "EUR"}},
						{Name: "empty", Properties: map[string]string{}},
						{Name: "external"},
					},
					Secrets: []oam.Secret{{
						Name: "password", Properties: oam.SecretProperties{Policy: "vault", Key: "db", Field: "f", Version: "3"},
					}},
				},
				Traits: []oam.Trait{
					{Type: "spreadscaler", Spread: &oam.Spread{Instances: 6, Spread: []oam.SpreadTarget{
						{Name: "eu", Requirements: map[string]string{"region": "eu"}, Weight: new(2)},
						{Name: "any"},
					}}},
					{Type: "link", Link: &oam.Link{
						Namespace: "wasi", Package: "keyvalue", Interfaces: []string{"store"},
						Source: &oam.ConfigDefinition{Config: []oam.Config{{Name: "pool"}}},
						Target: oam.Target{Name: "kv", Config: []oam.Config{{Name: "endpoint", Properties: map[string]string{"url": "redis://kv"}}}},
					}},
					{Type: "mine", Custom: json.RawMessage(`{"a":[true,null],"b":1.50}`)},
				},
			}, {
				Name: "kv", Type: oam.TypeCapability,
				Properties: oam.Properties{Application: &oam.SharedRef{Name: "platform", Component: "redis"}},
			}},
		},
	}
}

func TestAWholeManifestIsReadAndWritten(t *testing.T) {
	want := wholeManifest()
	require.Equal(t, want, parse(t, wholeYAML, oam.YAML).Manifest)
	require.Equal(t, want, parse(t, wholeYAML, oam.Detect).Manifest)
	require.Equal(t, want, parse(t, wholeJSON, oam.JSON).Manifest)
	require.Equal(t, want, parse(t, wholeJSON, oam.YAML).Manifest)
	require.Equal(t, want, parse(t, "\xef\xbb\xbf"+wholeYAML, oam.YAML).Manifest)
	require.Equal(t, want, parse(t, "\xef\xbb\xbf"+wholeJSON, oam.JSON).Manifest)

	text, err := want.JSON()
	require.NoError(t, err)
	require.Equal(t, wholeJSON, string(text))
	text, err = json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, wholeJSON, string(text))
}

func TestStringsOutsideOfPropertiesAreReadAsWritten(t *testing.T) {
	for written, want := range map[string]string{
		"5": "5", "1.50": "1.50", "0x10": "0x10", "1e3": "1e3", ".inf": ".inf", "true": "true", "yes": "yes", "2024-01-31": "2024-01-31",
		"null": "null", "~": "~", "": "", "'5'": "5", "!!str 5": "5", "!own text": "text", "!!int 5": "5", `"a\u00e9"`: "aé", ">-\n       a\n       b\n": "a b",
	} {
		document := parse(t, "apiVersion: "+written+"\nkind: k\nmetadata:\n  name: app\n  annotations:\n    a: "+written+
			"\n  labels:\n    l: "+written+"\nspec:\n  components: []\n  policies:\n  - name: n\n    type: t\n    properties:\n      p: "+written+"\n", oam.YAML)
		m := document.Manifest
		require.Equal(t, want, m.APIVersion, written)
		require.Equal(t, map[string]string{"a": want}, m.Metadata.Annotations, written)
		require.Equal(t, map[string]string{"l": want}, m.Metadata.Labels, written)
		require.Equal(t, map[string]string{"p": want}, m.Spec.Policies[0].Properties, written)
	}
	m := parse(t, "apiVersion: 1\nkind: 2\nmetadata: {name: 3}\nspec:\n  components:\n  - {name: 4, type: capability, properties: {image: a}, traits: [{type: 5, properties: 6}]}\n", oam.YAML).Manifest
	require.Equal(t, `{"apiVersion":"1","kind":"2","metadata":{"name":"3"},"spec":{"components":[`+
		`{"name":"4","type":"capability","properties":{"image":"a"},"traits":[{"type":"5","properties":6}]}]}}`, jsonOf(t, m))
}

func jsonOf(t *testing.T, m oam.Manifest) string {
	t.Helper()
	text, err := m.JSON()
	require.NoError(t, err)
	return string(text)
}

func TestStringsWithinPropertiesAreStrings(t *testing.T) {
	for _, written := range []string{
		"yes", "No", "on", "010", "-07", "1_000", "0x", "0X1F", "1e", "1e400", "--1", "+-1", "1.2.3", "2024-01-31", "12:30:45", "inf", "nan", "+.nan", "-.nan",
		"=", "<<", "tRUE", "nUll", "0b2", "0o8", ".", "-", "e1", "1 2",
	} {
		document := parse(t, withConfigValue(written), oam.YAML)
		require.Equal(t, written, document.Manifest.Spec.Components[0].Properties.Config[0].Properties["x"])
	}
	for written, kind := range map[string]string{
		"5": "number", "+5": "number", "-5": "number", "0": "number", "-0": "number", "0x1F": "number", "-0x1f": "number", "0o17": "number", "0b11": "number",
		"99999999999999999999999999999999999999999999": "number", "1.5": "number", "-1.5e-3": "number", ".5": "number", "+.5": "number", "1.": "number",
		"1e5": "number", "00.5": "number", ".inf": "number", "-.INF": "number", "+.Inf": "number", ".NaN": "number", "!!int '5'": "number", "!!float 5": "number",
		"true": "boolean", "True": "boolean", "FALSE": "boolean", "!!bool 'true'": "boolean",
	} {
		require.Contains(t, refused(t, withConfigValue(written), oam.YAML), " is a "+kind+"; a string is wanted; write it in quotes", written)
	}
	for _, written := range []string{"", "~", "null", "Null", "NULL", "!!null ''"} {
		require.Equal(t, `line 6, column 90: spec.components[0].properties.config[0].properties["x"]: null stands here; a string is wanted`,
			refused(t, withConfigValue(written), oam.YAML), written)
	}
}

func TestJSONStringsAreStringsEverywhere(t *testing.T) {
	for _, value := range []string{"5", "true", "null", "[]", "{}"} {
		for _, key := range []string{"annotations", "labels"} {
			src := `{"apiVersion":"a","kind":"k","metadata":{"name":"app","` + key + `":{"x":` + value + `}},"spec":{"components":[]}}`
			require.Contains(t, refused(t, src, oam.JSON), `metadata.`+key+`["x"]: `)
		}
		require.Contains(t, refused(t, `{"apiVersion":`+value+`,"kind":"k","metadata":{"name":"app"},"spec":{"components":[]}}`, oam.JSON), "line 1, column 15: apiVersion: ")
	}
	// The same text is YAML, which is more tolerant.
	m := parse(t, `{"apiVersion":"a","kind":"k","metadata":{"name":"app","labels":{"x":5}},"spec":{"components":[]}}`, oam.Detect).Manifest
	require.Equal(t, map[string]string{"x": "5"}, m.Metadata.Labels)
}

func TestNothingIsAnEmptyListOrMap(t *testing.T) {
	want := oam.Manifest{
		APIVersion: "a", Kind: "k", Metadata: oam.Metadata{Name: "app"},
		Spec: oam.Specification{Components: []oam.Component{{Name: "c", Type: oam.TypeComponent, Properties: oam.Properties{Image: "i"}}}},
	}
	for name, src := range map[string]string{
		"missing": `{"apiVersion":"a","kind":"k","metadata":{"name":"app"},"spec":{"components":[{"name":"c","type":"component","properties":{"image":"i"}}]}}`,
		"null": `{"apiVersion":"a","kind":"k","metadata":{"name":"app","annotations":null,"labels":null},"spec":{"policies":null,"components":[` +
			`{"name":"c","type":"component","traits":null,"properties":{"image":"i","id":null,"application":null,"config":null,"secrets":null}}]}}`,
		"empty": `{"apiVersion":"a","kind":"k","metadata":{"name":"app","annotations":{},"labels":{}},"spec":{"policies":[],"components":[` +
			`{"name":"c","type":"component","properties":{"image":"i","id":"","config":[],"secrets":[]}}]}}`,
	} {
		require.Equal(t, want, parse(t, src, oam.JSON).Manifest, name)
		require.Equal(t, want, parse(t, src, oam.YAML).Manifest, name)
	}
	require.Equal(t, want, parse(t, "apiVersion: a\nkind: k\nmetadata:\n  name: app\n  annotations:\n  labels:\nspec:\n  policies:\n  components:\n"+
		"  - name: c\n    type: component\n    properties:\n      image: i\n      config:\n      secrets: ~\n    traits:\n", oam.YAML).Manifest)
	require.Equal(t, []oam.Component{}, parse(t, "apiVersion: a\nkind: k\nmetadata: {name: app}\nspec:\n  components:\n", oam.YAML).Manifest.Spec.Components)
	require.Equal(t, `{"name":"c","type":"component","properties":{"application":{"name":"a","component":"b"}},"traits":[]}`,
		normal(t, withComponent("{name: c, type: component, properties: {image: '', application: {name: a, component: b}}, traits: []}")))
}

func TestUnknownKeys(t *testing.T) {
	for name, src := range map[string]string{
		"metadata":                 "apiVersion: a\nkind: k\nmetadata: {name: app, namespace: x}\nspec: {components: []}\n",
		"a spec":                   "apiVersion: a\nkind: k\nmetadata: {name: app}\nspec: {components: [], namespace: x}\n",
		"a policy":                 "apiVersion: a\nkind: k\nmetadata: {name: app}\nspec: {components: [], policies: [{name: a, type: b, properties: {}, namespace: x}]}\n",
		"a component":              withComponent("{name: c, type: component, properties: {image: a}, namespace: x}"),
		"an application reference": withComponent("{name: c, type: component, properties: {application: {name: a, component: b, namespace: x}}}"),
		"a secret":                 withComponent("{name: c, type: component, properties: {image: a, secrets: [{name: a, properties: {policy: p, key: k}, namespace: x}]}}"),
		"a secret's properties":    withComponent("{name: c, type: component, properties: {image: a, secrets: [{name: a, properties: {policy: p, key: k, namespace: x}}]}}"),
		"a link's source":          withTrait("{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, source: {namespace: x}}}"),
		"a link's target":          withTrait("{type: link, properties: {namespace: a, package: b, interfaces: [c], target: {name: k, namespace: x}}}"),
	} {
		findings := parse(t, src, oam.YAML).Validate()
		require.Contains(t, findings[len(findings)-1].Message, `"namespace" is no key of `+name+" and has no effect; the keys are ", name)
		require.Equal(t, oam.RuleIgnoredKey, findings[len(findings)-1].Rule)
		require.Equal(t, oam.Warning, findings[len(findings)-1].Level)
	}
	findings := parse(t, withTrait("{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, values: {A: b}}}"), oam.YAML).Validate()
	require.Equal(t, oam.Finding{
		Level: oam.Warning, Rule: "ignored-key", Path: "spec.components[0].traits[0].properties", Line: 6, Column: 145,
		Message: `"values" is no key of a link and has no effect; the keys are name, namespace, package, interfaces, source, target, source_config, target_config`,
	}, findings[len(findings)-1])
}

// TestListsOfValues holds to what serde makes of structs.
func TestListsOfValues(t *testing.T) {
	const inJSON = `["a","k",["app",{"x":"y"},{}],[[{"name":"c","type":"component","traits":[["mine",[1]]],` +
		`"properties":["i",null,"id",[["n",{"a":"b"}],["m",null]],[["s",["p","k"]]]]}],[["n",{"backend":"b"},"t"]]]]`
	const want = `{"apiVersion":"a","kind":"k","metadata":{"name":"app","annotations":{"x":"y"}},"spec":{"components":[{"name":"c","type":"component",` +
		`"properties":{"image":"i","id":"id","config":[{"name":"n","properties":{"a":"b"}},{"name":"m"}],"secrets":[{"name":"s","properties":{"policy":"p","key":"k"}}]},` +
		`"traits":[{"type":"mine","properties":{"instances":1}}]}],"policies":[{"name":"n","type":"t","properties":{"backend":"b"}}]}}`
	require.Equal(t, want, jsonOf(t, parse(t, inJSON, oam.JSON).Manifest))
	require.Equal(t, want, jsonOf(t, parse(t, inJSON, oam.Detect).Manifest))
	require.Equal(t, "line 1, column 1: a list stands here; a mapping is wanted; the keys are apiVersion, kind, metadata, spec", refused(t, inJSON, oam.YAML))

	require.Equal(t, `{"name":"c","type":"component","properties":{"image":"a"},"traits":[{"type":"spreadscaler","properties":{"instances":3,"spread":[`+
		`{"name":"s","requirements":{"a":"b"},"weight":2}]}}]}`,
		normal(t, withTrait("{type: spreadscaler, properties: [3, [[s, {a: b}, 2]]]}")))
	require.Equal(t, `{"name":"c","type":"component","properties":{"image":"a"},"traits":[{"type":"link","properties":{"namespace":"a","package":"b","interfaces":["c"],`+
		`"source":{},"target":{"name":"k"}}}]}`,
		normal(t, withTrait("{type: link, properties: {namespace: a, package: b, interfaces: [c], target: [k], source: []}}")))
	require.Contains(t, refused(t, withComponent("[c, component, {image: a}]"), oam.YAML), "spec.components[0]: a list stands here; a mapping is wanted")
	require.Contains(t, refused(t, withComponent("{name: c, type: component, properties: [a, ~]}"), oam.YAML), "spec.components[0].properties: a list stands here")
	require.Contains(t, refused(t, withComponent("{name: c, type: component, properties: [a, ~, ~, [], [], 1]}"), oam.YAML), "spec.components[0].properties: a list stands here")
}

// TestNumbersOfTypes holds to what serde makes of variants.
func TestNumbersOfTypes(t *testing.T) {
	for written, want := range map[string]oam.ComponentType{
		"component": "component", "actor": "component", "capability": "capability", "0": "component", "1": "capability", "0x1": "capability",
	} {
		m := parse(t, withComponent("{name: c, type: "+written+", properties: {image: a}}"), oam.YAML).Manifest
		require.Equal(t, want, m.Spec.Components[0].Type, written)
	}
	for _, written := range []string{"Component", "'0'", "2", "-1", "1.0", "~", "[component]", "provider"} {
		require.Contains(t, refused(t, withComponent("{name: c, type: "+written+", properties: {image: a}}"), oam.YAML),
			"a type of component is wanted; the types are component, capability and actor", written)
	}
}

func TestDetect(t *testing.T) {
	for name, want := range map[string]struct{ src, sentence string }{
		"evidently JSON":      {`{"apiVersion": "a",, }`, `line 1, column 20: the text is not JSON: invalid character ',' looking for beginning of object key string`},
		"JSON of other shape": {`{"apiVersion": "a"}`, `line 1, column 1: the key kind of a manifest is missing`},
		"flow style":          {`{apiVersion: a, kind: [}`, "the text is not YAML: did not find expected node content"},
		"flow style, misread": {`{apiVersion: a}`, "line 1, column 1: the key kind of a manifest is missing"},
		"a bracket":           {`{`, "line 1, column 1: the text is not JSON: unexpected end of JSON input"},
		"evidently YAML":      {"a: [", `line 1: the text is not YAML: did not find expected node content`},
		"a word":              {"hello", `line 1, column 1: "hello" is a string; a mapping is wanted; the keys are apiVersion, kind, metadata, spec`},
	} {
		require.Equal(t, want.sentence, refused(t, want.src, oam.Detect), name)
	}
	// JSON that only YAML takes, and JSON that YAML does not.
	for _, src := range []string{
		`{"apiVersion": 'a', kind: k, "metadata": {"name": "app"}, "spec": {"components": []},} # comment`,
		`{"apiVersion":"\ud83d\ude00","kind":"k","metadata":{"name":"app"},"spec":{"components":[]}}`,
	} {
		require.Equal(t, "app", parse(t, src, oam.Detect).Manifest.Metadata.Name)
	}
	require.Equal(t, "line 1, column 16: the text is not JSON: invalid character '\\'' looking for beginning of value", refused(t, `{"apiVersion": 'a'}`, oam.JSON))
	require.Equal(t, "JSON", oam.JSON.String())
	require.Equal(t, "YAML", oam.YAML.String())
	require.Equal(t, "YAML or JSON", oam.Detect.String())
}

func TestYAMLIsReadByItsRules(t *testing.T) {
	const rest = "kind: k\nmetadata: {name: app}\nspec: {components: []}\n"
	for name, src := range map[string]string{
		"marks":         "%YAML 1.2\n---\napiVersion: a\n" + rest + "...\n",
		"CRLF":          "apiVersion: a\r\nkind: k\r\nmetadata: {name: app}\r\nspec: {components: []}\r\n",
		"anchors":       "apiVersion: &a a\nkind: *a\nmetadata: {name: app}\nspec: {components: []}\n",
		"explicit keys": "? apiVersion\n: a\n" + rest,
		"alias as key":  "metadata: {name: app, x: &k apiVersion}\n*k : a\nkind: k\nspec: {components: []}\n",
	} {
		require.Equal(t, "a", parse(t, src, oam.YAML).Manifest.APIVersion, name)
	}
	m := parse(t, "apiVersion: a\nkind: k\nmetadata: {name: app, annotations: &m {x: y}, labels: *m}\nspec: {components: []}\n", oam.YAML).Manifest
	require.Equal(t, m.Metadata.Annotations, m.Metadata.Labels)
	for name, want := range map[string]struct{ src, sentence string }{
		"merge keys":        {"apiVersion: a\nkind: k\nmetadata: {<<: {name: app}}\nspec: {components: []}\n", "line 3, column 11: metadata: the key name of metadata is missing"},
		"two documents":     {"apiVersion: a\n" + rest + "---\na: b\n", "line 5, column 1: a second YAML document begins here; one document is wanted"},
		"an empty second":   {"apiVersion: a\n" + rest + "---\n", "line 5, column 1: a second YAML document begins here; one document is wanted"},
		"unknown alias":     {"apiVersion: *a\n" + rest, "the text is not YAML: unknown anchor 'a' referenced"},
		"tab":               {"apiVersion: a\n\tkind: k\n", "line 2: the text is not YAML: found a tab character that violates indentation"},
		"control character": {"apiVersion: \x01\n", "the text is not YAML: control characters are not allowed"},
		"list as key":       {"apiVersion: a\n[a]: b\n" + rest, "line 2, column 1: a list stands here; a string is wanted as a key"},
		"only a comment":    {"# nothing\n", "the document is empty; a manifest is wanted"},
		"only a mark":       {"---\n", "line 2, column 1: the key apiVersion of a manifest is missing"},
	} {
		require.Equal(t, want.sentence, refused(t, want.src, oam.YAML), name)
	}
}

func TestJSONIsReadByItsRules(t *testing.T) {
	whole := func(value string) string {
		return `{"apiVersion":` + value + `,"kind":"k","metadata":{"name":"app"},"spec":{"components":[]}}`
	}
	for written, want := range map[string]string{
		`"x\/y\\ufffd"`: `x/y\ufffd`, `"\ud83d\ude00"`: "😀", `"\ufffd"`: "\uFFFD", `"\u0000"`: "\x00", "\"\x7f\u2028\"": "\x7f\u2028", `"\u00e9\uD83D\uDE00"`: "é😀", `""`: "",
	} {
		require.Equal(t, want, parse(t, " \n\t"+whole(written)+"\r\n ", oam.JSON).Manifest.APIVersion)
	}
	for written, want := range map[string]string{
		`"\ud83d"`:       "line 1, column 15: the string has half a surrogate pair, which is no character",
		`"\ude00\ud83d"`: "line 1, column 15: the string has half a surrogate pair, which is no character",
		`"\ud83d\u0041"`: "line 1, column 15: the string has half a surrogate pair, which is no character",
		"\"\t\"":         `line 1, column 16: the text is not JSON: invalid character '\t' in string literal`,
		`1e400`:          "line 1, column 15: the number 1e400 is out of range",
		`"a",`:           `line 1, column 19: the text is not JSON: invalid character ',' looking for beginning of object key string`,
	} {
		require.Equal(t, want, refused(t, whole(written), oam.JSON), written)
	}
	require.Equal(t, `line 2, column 1: the text is not JSON: invalid character 'x' after top-level value`, refused(t, whole(`"a"`)+"\nx", oam.JSON))
	require.Equal(t, `line 1, column 2: the text is not JSON: unexpected end of JSON input`, refused(t, `[1`, oam.JSON))
}

func TestErrorsSayWhere(t *testing.T) {
	for _, want := range []struct{ src, sentence string }{
		{"kind: k\n", "line 1, column 1: the key apiVersion of a manifest is missing"},
		{"apiVersion: a\nkind: k\nmetadata: {}\nspec: {}\n", "line 3, column 11: metadata: the key name of metadata is missing"},
		{"apiVersion: a\nkind: k\nmetadata: {name: app}\nspec: {}\n", "line 4, column 7: spec: the key components of a spec is missing"},
		{"apiVersion: a\nkind: k\nmetadata: {name: [a]}\nspec: {}\n", "line 3, column 18: metadata.name: a list stands here; a string is wanted"},
		{"apiVersion: a\nkind: k\nmetadata: x\nspec: {}\n", `line 3, column 11: metadata: "x" is a string; a mapping is wanted; the keys are name, annotations, labels`},
		{"apiVersion: a\nkind: k\nversion: v\nmetadata: {}\n", `line 3, column 1: "version" is no key of a manifest; the keys are apiVersion, kind, metadata, spec`},
		{"apiVersion: a\nkind: k\nmetadata: {name: app}\nspec: {components: {}}\n", "line 4, column 20: spec.components: a mapping stands here; a list is wanted"},
		{"apiVersion: a\nkind: k\nmetadata: {name: app, labels: [a]}\nspec: {}\n", "line 3, column 31: metadata.labels: a list stands here; a mapping of strings is wanted"},
		{withComponent("{name: c, type: widget, properties: {}}"), `line 6, column 21: spec.components[0].type: "widget" is a string; a type of component is wanted; the types are component, capability and actor`},
		{withComponent("{name: c, type: 2, properties: {}}"), `line 6, column 21: spec.components[0].type: 2 is a number; a type of component is wanted; the types are component, capability and actor`},
		{withComponent("{name: c, type: component}"), "line 6, column 5: spec.components[0]: the key properties of a component is missing"},
		{withComponent("~"), "line 6, column 5: spec.components[0]: null stands here; a mapping is wanted; the keys are name, type, properties, traits"},
		{withComponent("{name: c, type: component, properties: {image: a, contract: b}}"), `line 6, column 55: spec.components[0].properties: "contract" is no key of a component's properties; the keys are image, application, id, config, secrets`},
		{withComponent("{name: c, type: component, properties: {image: a, config: [{name: n, value: b}]}}"), `line 6, column 74: spec.components[0].properties.config[0]: "value" is no key of a config; the keys are name, properties`},
		{withComponent("{name: c, type: component, properties: {image: a, secrets: [{name: n}]}}"), "line 6, column 65: spec.components[0].properties.secrets[0]: the key properties of a secret is missing"},
		{withTrait("{type: spreadscaler, property: {}}"), `line 6, column 86: spec.components[0].traits[0]: "property" is no key of a trait; the keys are type, properties`},
		{withTrait("{type: spreadscaler}"), "line 6, column 65: spec.components[0].traits[0]: the key properties of a trait is missing"},
		{withTrait("{type: spreadscaler, properties: {instances: 2147483648}}"), "line 6, column 110: spec.components[0].traits[0].properties.instances: 2147483648 is too large; at most 2147483647 is possible"},
		{withTrait("{type: daemonscaler, properties: {instances: 1, spread: [{name: a, weight: 99999999999}]}}"), "line 6, column 140: spec.components[0].traits[0].properties.spread[0].weight: 99999999999 is too large; at most 2147483647 is possible"},
	} {
		require.Equal(t, want.sentence, refused(t, want.src, oam.YAML))
	}
	_, err := oam.Parse([]byte("kind: k\n"), oam.YAML)
	require.Equal(t, &oam.ParseError{Line: 1, Column: 1, Message: "the key apiVersion of a manifest is missing"}, err)
}

// TestColumnsAreCharacters counts characters, not bytes, in both formats.
func TestColumnsAreCharacters(t *testing.T) {
	require.Equal(t, "line 2, column 8: \"x\" is no key of a manifest; the keys are apiVersion, kind, metadata, spec", refused(t, "{\"kind\":\n\"äöü\", \"x\": 1}", oam.JSON))
	require.Equal(t, "line 2, column 8: \"x\" is no key of a manifest; the keys are apiVersion, kind, metadata, spec", refused(t, "{\"kind\":\n\"äöü\", \"x\": 1}", oam.YAML))
}

func TestDuplicateKeys(t *testing.T) {
	const twice = "is there twice; keep one of them"
	for _, src := range []string{
		"apiVersion: a\nkind: k\nkind: k\n",
		"apiVersion: a\nkind: k\nmetadata: {name: a, name: b}\n",
		withComponent("{name: c, name: c, type: component, properties: {image: a}}"),
		withComponent("{name: c, type: component, type: component, properties: {image: a}}"),
		withComponent("{name: c, type: component, properties: {image: a, image: a}}"),
		withComponent("{name: c, type: component, properties: {image: a, config: [{name: a, name: b}]}}"),
		withTrait("{type: mine, type: mine, properties: {}}"),
	} {
		require.Contains(t, refused(t, src, oam.YAML), twice, src)
	}
	require.Contains(t, refused(t, `{"apiVersion":"a","kind":"a","kind":"b"}`, oam.JSON), `line 1, column 30: the key "kind" `+twice)

	document := parse(t, "apiVersion: a\nkind: k\nmetadata:\n  name: app\n  x: 1\n  x: 2\n  annotations: {v: a, v: b}\nspec: {components: []}\n", oam.YAML)
	require.Equal(t, map[string]string{"v": "b"}, document.Manifest.Metadata.Annotations)
	require.Contains(t, document.Validate(), oam.Finding{
		Level: oam.Warning, Rule: "duplicate-key", Path: "metadata.annotations", Line: 7, Column: 23,
		Message: `the key "v" is there more than once; the last one counts`,
	})
	// wadm reads links through a map, where earlier values are forgotten unseen.
	require.Equal(t, `{"type":"link","properties":{"namespace":"a","package":"b","interfaces":["c"],"target":{"name":"k","config":[{"name":"n","properties":{"x":"y","z":""}}]}}}`,
		traitOf(t, withTrait("{type: link, properties: {namespace: 5, namespace: a, package: b, interfaces: [c], target: {name: k, config: [{name: n, properties: {x: 1, z: '', x: y}}]}}}")))
	require.Contains(t, refused(t, withComponent("{name: c, type: component, properties: {image: a, config: [{name: n, properties: {x: 1, x: y}}]}}"), oam.YAML), "1 is a number")
	document = parse(t, withTrait("{type: link, properties: {namespace: a, package: b, package: c, interfaces: [i], target: {name: x, name: k}}}"), oam.YAML)
	require.Equal(t, "c", document.Manifest.Spec.Components[0].Traits[0].Link.Package)
	require.Equal(t, "k", document.Manifest.Spec.Components[0].Traits[0].Link.Target.Name)
}
