package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const goodMission = `apiVersion: tidewait/v1
kind: Mission
metadata: {name: m}
spec:
  backend: process
  workspace: {path: ./files}
  phases:
    - name: only
      run: ["true"]
`

const badMission = `apiVersion: tidewait/v1
kind: Mission
metadata: {name: m}
spec:
  backend: qemu
  colour: red
  workspace: {path: ./files}
  phases:
    - name: only
      run: ["true"]
`

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestValidateAcceptsADocument(t *testing.T) {
	path := written(t, goodMission)
	require.Equal(t, outcome{0, path + ": mission m is valid, 1 phase on process\n", ""}, tidewait("mission", "validate", path))
	require.Equal(t,
		outcome{0, "-: mission m is valid, 1 phase on process\n", ""},
		tidewaitWith(context.Background(), goodMission, "mission", "validate", "-"))
}

func TestInvalidDocumentsAreRefusedBeforeAnyServiceIsAsked(t *testing.T) {
	path := written(t, badMission)
	for _, args := range [][]string{
		{"mission", "validate", path},
		{"mission", "launch", path, "--nats.url", "nats://127.0.0.1:1", "--temporal.address", "127.0.0.1:1"},
	} {
		got := tidewait(args...)
		require.Equal(t, 2, got.code, args)
		require.Regexp(t, `(?m)^`+path+`:5:12: spec\.backend: "qemu" .*microvm.*process`, got.errors)
		require.Regexp(t, `(?m)^`+path+`:6:3: .*"colour"`, got.errors)
		require.Empty(t, got.out)
	}
	got := tidewaitWith(context.Background(), "kind: [", "mission", "validate", "-")
	require.Equal(t, 2, got.code)
	require.Regexp(t, `^<stdin>:1:1: the text is not YAML`, got.errors)
}

func TestValidateTellsOfEveryFile(t *testing.T) {
	good, bad := written(t, goodMission), written(t, badMission)
	got := tidewait("mission", "validate", bad, good)
	require.Equal(t, 2, got.code)
	require.Equal(t, good+": mission m is valid, 1 phase on process\n", got.out)
	require.Contains(t, got.errors, bad+":5:12: ")

	got = tidewait("mission", "validate", good, "-o", "json")
	require.Equal(t, 0, got.code)
	require.JSONEq(t, `[{"file":"`+good+`","valid":true,"mission":{"name":"m","spec":{
		"backend":"process","workspace":{"path":"./files"},
		"phases":[{"name":"only","resources":{"cpuMilli":1000,"memoryMiB":512,"diskMiB":1024},"image":"default","run":["true"],"attempts":1}]}}}]`, got.out)
}

func TestAMissingDocumentIsAUsageError(t *testing.T) {
	require.Equal(t,
		outcome{2, "", "tidewait: cannot read the mission document: open /nonexistent/m.yaml: no such file or directory\n"},
		tidewait("mission", "launch", "/nonexistent/m.yaml"))
}

func TestWorkspacesAreRelativeToTheDocument(t *testing.T) {
	path := written(t, goodMission)
	c := &cli{}
	d, err := c.readDocument(path)
	require.NoError(t, err)
	w, err := d.workspace()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(filepath.Dir(path), "files"), w.Path)
}
