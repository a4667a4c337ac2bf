package oam_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
)

// FuzzParseYAML wants no panic, an answer within bounded time and memory, errors
// that say what is wrong, and of what is accepted the same when written and read
// again.
func FuzzParseYAML(f *testing.F) {
	seed(f)
	for _, src := range []string{
		"a: &a [*a]", "&a {a: *a}", "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "? [a]\n: b\n", "<<: *x", "a: !!binary x", "a: !own {b: c}", "- |\n  x\n--- \n...",
		"%YAML 1.2\n---\na: b", "%YAML 1.2", "%TAG ! x:\n---\n!a b", "\xef\xbb\xbfa: 1", "a: !!float x\n#c\n\t", "a: \"\\ud83d\"", "{a: [}, ]", "'", "a: |2-\n   b\n\n",
		"apiVersion: a\nkind: k\nmetadata: {name: app}\nspec: {components: []}\n---\n",
		withTrait("{type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, target_config: [{name: x, properties: {}}], source: ~}}"),
		withTrait("{type: spreadscaler, properties: {replicas: 0x1F, spread: [{name: a, weight: 0}]}}"), withTrait("{type: link, properties: [1, ~, 1e400, .inf]}"),
	} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) { holds(t, src, oam.YAML) })
}

// FuzzParseJSON wants the same of JSON.
func FuzzParseJSON(f *testing.F) {
	seed(f)
	for _, src := range []string{
		wholeJSON, `{"a":[1,{}]}`, `["a","k",["app",{}],[[]]]`, `{"apiVersion":"\ud83d\u0041"}`, `{"apiVersion":"\\\"\u00e9"}`, `[[[[`, `{"a":1e400}`, `"`, `{"a":"\`, `null`,
		`{"apiVersion":"a","kind":"k","metadata":{"name":"app"},"spec":{"components":[{"name":"c","type":0,"properties":["i",null,null],"traits":[["link",{"a":-0}]]}]}}`,
	} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		holds(t, src, oam.JSON)
		holds(t, src, oam.Detect)
	})
}

// FuzzUnmarshal wants the same of what encoding/json hands over.
func FuzzUnmarshal(f *testing.F) {
	seed(f)
	f.Add([]byte(wholeJSON))
	f.Fuzz(func(t *testing.T, src []byte) {
		var m oam.Manifest
		if err := json.Unmarshal(src, &m); err == nil {
			readsBack(t, m)
		}
		var trait oam.Trait
		if err := json.Unmarshal(src, &trait); err == nil {
			text, err := json.Marshal(trait)
			require.NoError(t, err)
			var again oam.Trait
			require.NoError(t, json.Unmarshal(text, &again))
			require.Equal(t, trait, again)
		}
	})
}

func seed(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.*")
	require.NoError(f, err)
	for _, file := range files {
		src, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(src)
	}
	f.Add([]byte(wholeYAML))
}

func holds(t *testing.T, src []byte, format oam.Format) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	document, err := oam.Parse(src, format)
	if err != nil {
		var parseError *oam.ParseError
		require.ErrorAs(t, err, &parseError)
		require.NotEmpty(t, parseError.Message)
	} else {
		for _, finding := range document.Validate() {
			require.NotEmpty(t, finding.Message)
			require.True(t, finding.Line > 0 || finding.Rule == oam.RuleMoreFindings)
		}
		readsBack(t, document.Manifest)
	}
	require.Less(t, time.Since(began), 10*time.Second)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
}

// readsBack writes a manifest in every way and reads it.
func readsBack(t *testing.T, want oam.Manifest) {
	t.Helper()
	text, err := want.JSON()
	require.NoError(t, err)
	document, err := oam.Parse(text, oam.JSON)
	require.NoError(t, err, string(text))
	require.Equal(t, want, document.Manifest)
	text, err = want.YAML()
	require.NoError(t, err)
	document, err = oam.Parse(text, oam.YAML)
	require.NoError(t, err, string(text))
	require.Equal(t, want, document.Manifest)
	want.Facts()
}
