package wadmapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the replies into testdata/replies instead of comparing them")

// conversation is a file of testdata/replies: requests to one server, in order,
// and what it answers, byte by byte.
type conversation struct {
	About         string `json:"about"`
	Multitenant   bool   `json:"multitenant,omitempty"`
	Prefix        string `json:"prefix,omitempty"`
	ProtectShared bool   `json:"protectShared,omitempty"`
	Steps         []step `json:"steps"`
}

type step struct {
	Name    string      `json:"name"`
	Subject string      `json:"subject"`
	Header  nats.Header `json:"header,omitempty"`
	// Body is text, sent as it is, or any other JSON value, sent compact.
	Body json.RawMessage `json:"body,omitempty"`
	// Reply is compact on the wire.
	Reply json.RawMessage `json:"reply"`
}

// volatile is everything in a reply that differs from run to run, and what
// stands for it in the files.
var volatile = []struct {
	pattern *regexp.Regexp
	mask    string
}{
	{regexp.MustCompile(`\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b`), "<ULID>"},
	{regexp.MustCompile(`"since":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`), `"since":"<TIME>"`},
}

func masked(reply string) string {
	for _, v := range volatile {
		reply = v.pattern.ReplaceAllString(reply, v.mask)
	}
	return reply
}

func TestReplies(t *testing.T) {
	files, err := filepath.Glob("testdata/replies/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var c conversation
			d := json.NewDecoder(bytes.NewReader(text))
			d.DisallowUnknownFields()
			require.NoError(t, d.Decode(&c))
			converse(t, &c)
			if *update {
				require.NoError(t, os.WriteFile(file, indented(t, c), 0o644))
			}
		})
	}
}

func converse(t *testing.T, c *conversation) {
	settings := defaults
	settings.Multitenant, settings.ProtectShared = c.Multitenant, c.ProtectShared
	if c.Prefix != "" {
		settings.APIPrefix = c.Prefix
	}
	a := startAPI(t, options{settings: settings})
	for i := range c.Steps {
		s := &c.Steps[i]
		reply := masked(a.askSubject(t, s.Subject, body(t, s.Body), s.Header))
		if *update {
			s.Reply = json.RawMessage(reply)
			continue
		}
		require.Equal(t, string(compact(t, s.Reply)), reply, s.Name)
	}
}

func body(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	if len(raw) == 0 {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(compact(t, raw))
}

func compact(t *testing.T, raw json.RawMessage) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, json.Compact(&b, raw))
	return b.Bytes()
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	require.NoError(t, e.Encode(v))
	return b.Bytes()
}
