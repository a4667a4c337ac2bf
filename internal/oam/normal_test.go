package oam_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
)

func TestNormalFormForgetsWhatIsNotMeant(t *testing.T) {
	document := parse(t, `
apiVersion: core.oam.dev/v1beta1
kind: Application
metadata: {namespace: gone, labels: {}, annotations: ~, name: app}
spec:
  policies: []
  components:
  - traits: []
    properties: {config: [], secrets: ~, id: ~, image: i}
    type: actor
    name: a
    extra: gone
  - name: b
    type: capability
    traits: ~
    properties: {image: i}
`, oam.YAML)
	require.Equal(t, `{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":"app"},"spec":{"components":[`+
		`{"name":"a","type":"component","properties":{"image":"i"},"traits":[]},{"name":"b","type":"capability","properties":{"image":"i"}}]}}`,
		jsonOf(t, document.Manifest))
}

// TestNormalFormOfNothing has every list and map that readers insist on.
func TestNormalFormOfNothing(t *testing.T) {
	require.Equal(t, `{"apiVersion":"","kind":"","metadata":{"name":""},"spec":{"components":[]}}`, jsonOf(t, oam.Manifest{}))
	require.Equal(t, `{"apiVersion":"","kind":"","metadata":{"name":""},"spec":{"components":[{"name":"","type":"","properties":{},"traits":[`+
		`{"type":"link","properties":{"namespace":"","package":"","interfaces":[],"target":{"name":""}}},`+
		`{"type":"spreadscaler","properties":{"instances":0,"spread":[{"name":""}]}},{"type":"","properties":null}]}],`+
		`"policies":[{"name":"","type":"","properties":{}}]}}`, jsonOf(t, oam.Manifest{Spec: oam.Specification{
		Components: []oam.Component{{Traits: []oam.Trait{{Type: "link", Link: &oam.Link{}}, {Type: "spreadscaler", Spread: &oam.Spread{Spread: []oam.SpreadTarget{{}}}}, {}}}},
		Policies:   []oam.Policy{{}},
	}}))
}

func TestStoredManifestsAreReadBack(t *testing.T) {
	want := wholeManifest()
	var got oam.Manifest
	require.NoError(t, json.Unmarshal([]byte(wholeJSON), &got))
	require.Equal(t, want, got)

	var traits []oam.Trait
	text, err := json.Marshal(want.Spec.Components[0].Traits)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &traits))
	require.Equal(t, want.Spec.Components[0].Traits, traits)

	require.EqualError(t, json.Unmarshal([]byte(`{"apiVersion":"a"}`), &got), "line 1, column 1: the key kind of a manifest is missing")
	require.EqualError(t, json.Unmarshal([]byte(`{"type":"link"}`), &traits[0]), "line 1, column 1: the key properties of a trait is missing")
	var syntax *json.SyntaxError
	require.ErrorAs(t, json.Unmarshal([]byte(`{`), &got), &syntax)
	require.EqualError(t, json.Unmarshal([]byte("{\"type\":\"\xff\",\"properties\":1}"), &traits[0]), "line 1, column 10: the text is not UTF-8; save it as UTF-8")
	require.Error(t, new(oam.Trait).UnmarshalJSON(nil))
	require.Error(t, new(oam.Manifest).UnmarshalJSON(nil))
}

func TestWhatCannotBeWritten(t *testing.T) {
	m := oam.Manifest{Spec: oam.Specification{Components: []oam.Component{{Traits: []oam.Trait{{Custom: json.RawMessage("{")}}}}}}
	_, err := m.JSON()
	require.ErrorContains(t, err, "unexpected end of JSON input")
	_, err = m.YAML()
	require.ErrorContains(t, err, "unexpected end of JSON input")
}

func TestYAML(t *testing.T) {
	m := wholeManifest()
	m.Metadata.Annotations["description"] = "two\nlines\n"
	m.Metadata.Labels = map[string]string{"number": "8080", "yes": "yes", "null": "~", "empty": "", "float": "1e5", "text": "a: b #c", "date": "2024-01-31", "octal": "010"}
	text, err := m.YAML()
	require.NoError(t, err)
	require.Equal(t, `apiVersion: core.oam.dev/v1beta1
kind: Application
metadata:
  name: shop
  annotations:
    description: |
      two
      lines
    version: "1.10"
  labels:
    date: "2024-01-31"
    empty: ""
    float: "1e5"
    "null": "~"
    number: "8080"
    octal: "010"
    text: 'a: b #c'
    "yes": "yes"
spec:
  components:
    - name: api
      type: component
      properties:
        image: registry.example.com/api:1
        id: api-id
        config:
          - name: managed
            properties:
              currency: EUR
          - name: empty
            properties: {}
          - name: external
        secrets:
          - name: password
            properties:
              policy: vault
              key: db
              field: f
              version: "3"
      traits:
        - type: spreadscaler
          properties:
            instances: 6
            spread:
              - name: eu
                requirements:
                  region: eu
                weight: 2
              - name: any
        - type: link
          properties:
            namespace: wasi
            package: keyvalue
            interfaces:
              - store
            source:
              config:
                - name: pool
            target:
              name: kv
              config:
                - name: endpoint
                  properties:
                    url: redis://kv
        - type: mine
          properties:
            a:
              - true
              - null
            b: 1.50
    - name: kv
      type: capability
      properties:
        application:
          name: platform
          component: redis
  policies:
    - name: vault
      type: policy.secret.wasmcloud.dev/v1alpha1
      properties:
        backend: v
        port: "8200"
`, string(text))
	require.Equal(t, m, parse(t, string(text), oam.YAML).Manifest)
}
