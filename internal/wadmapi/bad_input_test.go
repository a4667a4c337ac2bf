package wadmapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// document puts text where the annotations of a manifest stand.
func document(name, annotations string) string {
	return fmt.Sprintf(`{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":%q,"annotations":%s},`+
		`"spec":{"components":[{"name":"c","type":"component","properties":{"image":"i:1"}}]}}`, name, annotations)
}

// nested is a document whose custom trait holds so many lists in one another.
func nested(depth int) string {
	return `{"apiVersion":"a","kind":"k","metadata":{"name":"deep"},"spec":{"components":[{"name":"c","type":"component",` +
		`"properties":{"image":"i:1"},"traits":[{"type":"custom","properties":` +
		strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}]}]}}`
}

func aliasBomb() string {
	var b strings.Builder
	b.WriteString("apiVersion: a\nkind: k\nmetadata:\n  name: bomb\n  annotations: {}\nx0: &x0 [a,a,a,a,a,a,a,a,a,a]\n")
	for i := 1; i < 20; i++ {
		fmt.Fprintf(&b, "x%d: &x%d [%s*x%d]\n", i, i, strings.Repeat(fmt.Sprintf("*x%d,", i-1), 9), i-1)
	}
	b.WriteString("spec: {components: [{name: c, type: component, properties: {image: i}, traits: [{type: t, properties: *x19}]}]}\n")
	return b.String()
}

// What is malformed is answered by the error object, soon; nothing of it is
// stored, and the server goes on.
func TestBadInput(t *testing.T) {
	a := startAPI(t, options{maxPayload: 8 << 20})
	yaml, jsn := nats.Header{"Content-Type": {"application/yaml"}}, nats.Header{"Content-Type": {"application/json"}}
	put := "wadm.api.default.model.put"
	for _, c := range []struct {
		about, subject, body string
		header               nats.Header
	}{
		{"not UTF-8", put, document("x", "{\"description\":\"\xff\"}"), jsn},
		{"not UTF-8, YAML", put, "apiVersion: \"\xff\"\n", yaml},
		{"not UTF-8, detected", put, "\xff\xfe\x00a", nil},
		{"half a character at the end", put, "kind: caf\xc3", nil},
		{"nothing but zeros", put, strings.Repeat("\x00", 1000), nil},
		{"deeply nested", put, nested(100_000), jsn},
		{"deeply nested, YAML", put, nested(100_000), yaml},
		{"deeply nested, detected", put, nested(3_000_000), nil},
		{"deeply nested braces", put, strings.Repeat("{", 1_000_000), nil},
		{"a bomb of aliases", put, aliasBomb(), yaml},
		{"a bomb of aliases, detected", put, aliasBomb(), nil},
		{"an alias of itself", put, "apiVersion: &a [*a]\nkind: k\n", yaml},
		{"too many values", put, `{"apiVersion":"a","kind":"k","metadata":{"name":"n"},"spec":{"components":[` + strings.Repeat("{},", 300_000) + `{}]}}`, jsn},
		{"too many bytes", put, document("x", `{"description":"`+strings.Repeat("x", 5<<20)+`"}`), jsn},
		{"a number that fits nowhere", put, strings.Replace(manifest("x", "v1"), `"instances":2`, `"instances":1e999`, 1), jsn},
		{"a negative number", put, strings.Replace(manifest("x", "v1"), `"instances":2`, `"instances":-2`, 1), jsn},
		{"a character 0 in the version", put, document("x", `{"version":"a\u0000"}`), jsn},
		{"a character 0 in the name", put, document("x\u0000", `{}`), jsn},
		{"a key twice in YAML", put, "apiVersion: a\napiVersion: b\nkind: k\nmetadata: {name: x}\nspec: {components: []}\n", yaml},
		{"two documents", put, "apiVersion: a\nkind: k\nmetadata: {name: x}\nspec: {components: []}\n---\n{}\n", yaml},
		{"a tag", put, "!!python/object:os.system {a: b}\n", yaml},
		{"a content type that is not UTF-8", put, manifest("x", "v1"), nats.Header{"Content-Type": {"\xff\xfe"}}},
		{"a content type of 10 kB", put, manifest("x", "v1"), nats.Header{"Content-Type": {strings.Repeat("x", 10_000)}}},

		{"a body that is not UTF-8", "wadm.api.default.model.get.shop", "{\"version\":\"\xff\"}", nil},
		{"a key that is not UTF-8", "wadm.api.default.model.del.shop", "{\"\xff\":1}", nil},
		{"a body of brackets", "wadm.api.default.model.deploy.shop", strings.Repeat("[", 1_000_000), nil},
		{"a body of braces", "wadm.api.default.model.del.shop", strings.Repeat(`{"a":`, 1_000_000), nil},
		{"a body of zeros", "wadm.api.default.model.undeploy.shop", "\x00\x00", nil},
		{"an actor that is not UTF-8", "wadm.api.default.model.deploy.shop", "", nats.Header{"Tidewait-Actor": {"\xff"}}},

		{"a name that is not UTF-8", "wadm.api.default.model.get.\xff", "", nil},
		{"a lattice that is not UTF-8", "wadm.api.\xff.model.list", "", nil},
		{"a lattice with a control character", "wadm.api.a\x01b.model.list", "", nil},
		{"a name with a character 0", "wadm.api.default.model.status.a\x00b", "", nil},
		{"an operation that is not UTF-8", "wadm.api.default.model.\xff", "", nil},
		{"a long subject", "wadm.api." + strings.Repeat("x.", 1000) + "x", "", nil},
	} {
		began := time.Now()
		reply := a.askSubject(t, c.subject, c.body, c.header)
		require.Less(t, time.Since(began), 5*time.Second, c.about)
		require.True(t, utf8.ValidString(reply), c.about)
		var e map[string]string
		require.NoError(t, json.Unmarshal([]byte(reply), &e), "%s: %.300s", c.about, reply)
		require.Equal(t, "error", e["result"], "%s: %.300s", c.about, reply)
		require.NotEmpty(t, e["message"], c.about)
		require.Len(t, e, 2, "%s: %.300s", c.about, reply)
		require.LessOrEqual(t, len(e["message"]), 4096+10, c.about)
	}
	require.Equal(t, "[]", a.ask(t, "model.list", "", nil))
	require.Zero(t, a.changed.Load())
	var rows int
	require.NoError(t, a.db.QueryRow(t.Context(), `SELECT count(*) FROM applications`).Scan(&rows))
	require.Zero(t, rows, "in no lattice")
}

// A character 0 is legal in JSON and not in a text of Postgres: what stands in
// the document only is kept, what is a column is refused.
func TestTheCharacter0InADocument(t *testing.T) {
	a := startAPI(t, options{})
	const zero = `\u0000`
	for _, c := range []struct{ about, document, want string }{
		{"description", document("x", `{"version":"v1","description":"a`+zero+`"}`), "has a NUL character"},
		{"another annotation", document("x", `{"version":"v2","other":"a`+zero+`"}`), `"created"`},
		{"name of a component", strings.Replace(document("x", `{"version":"v3"}`), `"name":"c"`, `"name":"c`+zero+`"`, 1), "has a NUL character"},
		{"image", strings.Replace(document("x", `{"version":"v4"}`), `i:1`, `i:`+zero, 1), `"newversion"`},
		{"id", strings.Replace(document("x", `{"version":"v5"}`), `"image":"i:1"`, `"image":"i:1","id":"`+zero+`"`, 1), `"error"`},
		{
			"shared application", strings.Replace(document("x", `{"version":"v6"}`), `"image":"i:1"`,
				`"application":{"name":"a`+zero+`","component":"c"}`, 1), "has a NUL character",
		},
	} {
		reply := a.ask(t, "model.put", c.document, nil)
		require.Contains(t, reply, c.want, c.about)
		require.NotContains(t, reply, "(internal)", c.about)
	}
	require.Contains(t, a.ask(t, "model.get.x", `{"version":"v2"}`, nil), `"other":"a`+zero+`"`)
}
