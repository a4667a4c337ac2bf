package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/examples"
)

const badApp = `apiVersion: core.oam.dev/v1beta1
kind: Application
metadata:
  name: shop
  annotations: {version: latest}
spec:
  components:
    - name: ui
      type: component
      properties: {image: "registry.example.com/shop/ui:1.0.0"}
    - name: ui
      type: component
      properties: {image: "registry.example.com/shop/ui:1.0.0"}
      traits:
        - {type: spreadscaler, properties: {instances: 1}}
`

const warnedApp = `apiVersion: core.oam.dev/v1beta1
kind: Application
metadata: {name: shop}
spec:
  components:
    - name: ui
      type: component
      properties: {image: "registry.example.com/shop/ui:1.0.0"}
`

func TestValidateApplications(t *testing.T) {
	good, warned, bad := writtenApp(t, goodApp), writtenApp(t, warnedApp), writtenApp(t, badApp)
	noScaler := `: warning: spec.components[0]: component "ui" has no scaler and will never be started; add a trait of type spreadscaler [no-scaler]` + "\n"
	require.Equal(t, outcome{0, good + ": application shop is valid, 1 component\n", ""}, tidewait("app", "validate", good))
	require.Equal(t,
		outcome{0, warned + ":6:7" + noScaler + warned + ": application shop is valid, 1 component, 1 warning\n", ""},
		tidewait("app", "validate", warned))

	got := tidewait("app", "validate", bad)
	require.Equal(t, []any{2, "tidewait: 1 document is not valid\n"}, []any{got.code, got.errors})
	lines := strings.SplitAfter(got.out, "\n")
	require.Len(t, lines, 4, got.out)
	require.Regexp(t, `^`+bad+`:5:17: error: metadata.annotations.*version.*: .*latest.* \[version-latest\]\n$`, lines[0])
	require.Equal(t, bad+":8:7"+noScaler, lines[1])
	require.Equal(t, bad+":11:7: error: spec.components[1].name: Duplicate component name in manifest: ui [duplicate-component]\n", lines[2])

	got = tidewait("app", "validate", bad, good, bad)
	require.Equal(t, []any{2, "tidewait: 2 documents are not valid\n"}, []any{got.code, got.errors})
	require.Contains(t, got.out, good+": application shop is valid, 1 component\n")
}

func TestValidateWritesItsFindingsForPrograms(t *testing.T) {
	good, warned := writtenApp(t, goodApp), writtenApp(t, warnedApp)
	require.Equal(t, outcome{0, "[]\n", ""}, tidewait("app", "validate", good, "-o", "json"))
	require.Equal(t, outcome{0, `[
  {
    "file": "` + warned + `",
    "level": "warning",
    "rule": "no-scaler",
    "path": "spec.components[0]",
    "line": 6,
    "column": 7,
    "message": "component \"ui\" has no scaler and will never be started; add a trait of type spreadscaler"
  }
]
`, ""}, tidewait("app", "validate", warned, "-o", "json"))
	require.Equal(t, 2, tidewait("app", "validate", writtenApp(t, badApp), "-o", "json").code)
}

func TestValidateSaysWhyATextIsNoDocument(t *testing.T) {
	for text, want := range map[string]string{
		"kind: 1\nspec: [": "<stdin>:2: error: the text is not YAML: ",
		"\xff":             "<stdin>:1:1: error: the text is not UTF-8; save it as UTF-8 [readable]\n",
		"":                 "<stdin>: error: the document is empty; a manifest is wanted [readable]\n",
		`{"kind":1}`:       "<stdin>:1:1: error: the key apiVersion of a manifest is missing [readable]\n",
	} {
		got := tidewaitWith(context.Background(), text, "app", "validate", "-")
		require.Equal(t, 2, got.code, "%q", text)
		require.Contains(t, got.out, want)
	}
	long := "x: " + strings.Repeat("y", 4<<20)
	require.Equal(t, "<stdin>: error: the document has 4194305 bytes; 4194304 are allowed [readable]\n",
		tidewaitWith(context.Background(), long, "app", "validate", "-").out)
}

func TestDocumentsFromURLs(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/app.yaml":
			_, _ = w.Write([]byte(goodApp))
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	withPassword := strings.Replace(s.URL, "http://", "http://ann:secret@", 1)
	hidden := strings.Replace(s.URL, "http://", "http://ann:xxxxx@", 1)
	require.Equal(t, outcome{0, hidden + "/app.yaml: application shop is valid, 1 component\n", ""}, tidewait("app", "validate", withPassword+"/app.yaml"))
	require.Equal(t, outcome{2, "", "tidewait: cannot read the application document: " + hidden + "/nope answered 404 Not Found\n"},
		tidewait("app", "validate", withPassword+"/nope"))
	require.Equal(t, s.URL+"/endless: error: the document has 4194305 bytes; 4194304 are allowed [readable]\n", tidewait("app", "validate", s.URL+"/endless").out)

	url := "http://ann:secret@" + closedPort(t)
	got := tidewait("app", "put", url+"/app.yaml")
	require.Equal(t, 5, got.code)
	require.Regexp(t, `^tidewait: cannot read the application document from http://ann:xxxxx@127\.0\.0\.1:\d+/app\.yaml: dial tcp .*refused\n$`, got.errors)
}

// What a URL refers to does not lie in a directory of this machine.
func TestRelativeImagesAreThoseOfTheFilesDirectory(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(goodApp)) }))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(goodApp), 0o600))
	t.Chdir(dir)
	c, _, _ := captured()
	for source, want := range map[string]string{
		"app.yaml":          "file://" + dir + "/build/ui.wasm",
		"./app.yaml":        "file://" + dir + "/build/ui.wasm",
		s.URL + "/app.yaml": "file://build/ui.wasm",
	} {
		d, err := c.readApp(context.Background(), source)
		require.NoError(t, err)
		require.Equal(t, want, d.manifest.Spec.Components[0].Properties.Image)
	}
	for image, want := range map[string]string{
		"file:///abs/ui.wasm":     "file:///abs/ui.wasm",
		"file://../other/ui.wasm": "file://" + filepath.Dir(dir) + "/other/ui.wasm",
		"registry.example.com/x":  "registry.example.com/x",
	} {
		require.NoError(t, os.WriteFile("app.yaml", []byte(strings.Replace(goodApp, "file://build/ui.wasm", image, 1)), 0o600))
		d, err := c.readApp(context.Background(), "app.yaml")
		require.NoError(t, err)
		require.Equal(t, want, d.manifest.Spec.Components[0].Properties.Image)
	}
}

func TestExampleApplicationsAreValid(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, examples.Apps))
	t.Chdir(filepath.Join(dir, "apps"))
	require.Equal(t, outcome{0, `daemon.yaml: application daemon is valid, 2 components
hello.yaml: application hello is valid, 2 components
secrets.yaml: application payments is valid, 2 components
shared-consumer.yaml: application consumer is valid, 2 components
shared-platform.yaml: application platform is valid, 2 components
spread.yaml: application spread is valid, 1 component
`, ""}, tidewait("app", "validate", "daemon.yaml", "hello.yaml", "secrets.yaml", "shared-consumer.yaml", "shared-platform.yaml", "spread.yaml"))
	found, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	require.Len(t, found, 6)
}
