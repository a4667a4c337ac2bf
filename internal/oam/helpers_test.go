package oam_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
)

// withComponent is a document in YAML with one component, written in flow style.
func withComponent(component string) string {
	return "apiVersion: core.oam.dev/v1beta1\nkind: Application\nmetadata: {name: app}\nspec:\n  components:\n  - " + component + "\n"
}

// withTrait is a document whose component "c" has one trait, and a capability
// "k" beside it.
func withTrait(t string) string {
	return withComponent("{name: c, type: component, properties: {image: a}, traits: ["+t+"]}") +
		"  - {name: k, type: capability, properties: {image: b}}\n"
}

func withConfigValue(value string) string {
	return withComponent("{name: c, type: component, properties: {image: a, config: [{name: n, properties: {x: " + value + "}}]}}")
}

func parse(t *testing.T, src string, format oam.Format) *oam.Document {
	t.Helper()
	document, err := oam.Parse([]byte(src), format)
	require.NoError(t, err, src)
	return document
}

// refused returns the sentence a document is refused with.
func refused(t *testing.T, src string, format oam.Format) string {
	t.Helper()
	_, err := oam.Parse([]byte(src), format)
	var parseError *oam.ParseError
	require.ErrorAs(t, err, &parseError, src)
	return err.Error()
}

// normal returns the first component of a YAML document in its normal form.
func normal(t *testing.T, src string) string {
	t.Helper()
	m := parse(t, src, oam.YAML).Manifest
	m.Spec.Components = m.Spec.Components[:1]
	return inJSON(t, m.Spec)
}

func inJSON(t *testing.T, spec oam.Specification) string {
	t.Helper()
	text, err := oam.Manifest{Spec: spec}.JSON()
	require.NoError(t, err)
	const before = `{"apiVersion":"","kind":"","metadata":{"name":""},"spec":{"components":[`
	return string(text[len(before) : len(text)-len(`]}}`)])
}
