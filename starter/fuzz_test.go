package main

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/render"
)

// FuzzBucket reads any bucket of a wadm. Whatever is in it, each application that is
// found is of the key that it stood under, and no text of it is lost in silence.
func FuzzBucket(f *testing.F) {
	const manifest = `{"metadata":{"name":"hello"}}`
	f.Add("default", `["hello"]`, "default-hello", `{"manifests":{"v1":`+manifest+`},"deployed_version":"v1"}`, "")
	f.Add("default", `[1]`, "default-hello", `{"manifests":{"v1":1,"v1":null},"deployed_version":1}`, "")
	f.Add("a-default", `["hello"]`, "a-default-hello", `{"manifests":{"":`+manifest+`}}`, "a")
	f.Add("", ``, "-", `{"manifests":[]}`, "-")
	f.Fuzz(func(t *testing.T, listKey, list, appKey, app, account string) {
		got := readBucket(map[string][]byte{listKey: []byte(list), appKey: []byte(app)}, account, func(string) bool { return true })
		for _, a := range got.apps {
			require.NotEmpty(t, a.name)
			require.NotEmpty(t, a.lattice)
			require.NotEmpty(t, a.versions)
			require.True(t, strings.HasSuffix(appKey, a.lattice+"-"+a.name) || strings.HasSuffix(listKey, a.lattice+"-"+a.name), "%s is of neither key", a.name)
		}
	})
}

// FuzzLog shows any message of the log stream on a terminal, which it must not steer.
func FuzzLog(f *testing.F) {
	f.Add("tidewait.log.m.1.p.r1-1", "stdout", "2026-01-01T00:00:00Z", []byte("line\n"))
	f.Add("tidewait.log", "system", "yesterday", []byte("\x1b[2J\x07\u202e"))
	f.Add("tidewait.log.m.1.p.r1-1.author", "", "", []byte{0xff, 0x9b, '3', '1', 'm', '\n', '\n'})
	f.Fuzz(func(t *testing.T, subject, stream, when string, data []byte) {
		line := render.LogLineOf(subject, map[string][]string{api.LogHeaderStream: {stream}, api.LogHeaderTime: {when}}, data)
		line.Phase, line.Run, line.Agent = "p", "r1-1", "" // tokens of a subject that the server checked
		shown := render.Options{Width: 80}.LogLine(line, true)
		if i := strings.IndexFunc(shown, func(r rune) bool { return unicode.IsControl(r) || r == '\u202e' }); i >= 0 {
			t.Fatalf("%q is shown as %q", data, shown)
		}
	})
}
