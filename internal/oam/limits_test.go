package oam_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
)

// withUnknown is a document with any value where it is ignored.
func withUnknown(value string) string {
	return `{"apiVersion": "a", "kind": "k", "metadata": {"name": "app", "x": ` + value + `}, "spec": {"components": []}}`
}

func TestTextsThatAreNone(t *testing.T) {
	for _, format := range []oam.Format{oam.Detect, oam.YAML, oam.JSON} {
		for _, src := range []string{"", " ", "\n\t\r\n", "\xef\xbb\xbf", "\xef\xbb\xbf \n"} {
			require.Equal(t, "the document is empty; a manifest is wanted", refused(t, src, format))
		}
		require.Equal(t, "line 2, column 3: the text is not UTF-8; save it as UTF-8", refused(t, "a: b\nä \xff", format))
		require.Equal(t, "line 1, column 1: the text is not UTF-8; save it as UTF-8", refused(t, "\xff\xfea\x00", format))
		require.Equal(t, "the document has 4194305 bytes; 4194304 are allowed", refused(t, strings.Repeat(" ", oam.MaxDocumentBytes+1), format))
	}
}

func TestDepth(t *testing.T) {
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for _, format := range []oam.Format{oam.JSON, oam.YAML} {
		parse(t, withUnknown(nested(oam.MaxDepth-2)), format)
		require.Contains(t, refused(t, withUnknown(nested(oam.MaxDepth-1)), format), "the document is nested more than the 128 levels that are allowed")
		require.Contains(t, refused(t, withUnknown(nested(9000)), format), "the document is nested more than the 128 levels that are allowed")
		require.Contains(t, refused(t, withUnknown(nested(100_000)), format), "128 levels that are allowed")
	}
	// Aliases nest as well.
	require.Contains(t, refused(t, "a: &a "+nested(64)+"\nb: &b "+nested(64)[:64]+"*a"+nested(64)[64:]+"\n", oam.YAML), "128 levels that are allowed")
}

func TestNumberOfValues(t *testing.T) {
	ones := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	for _, format := range []oam.Format{oam.JSON, oam.YAML} {
		parse(t, withUnknown(ones(oam.MaxNodes-20)), format)
		require.Contains(t, refused(t, withUnknown(ones(oam.MaxNodes)), format), "the document has more than the 200000 values that are allowed, aliases written out")
	}
	require.Equal(t, "the document may have more than the 200000 values that are allowed", refused(t, withUnknown(ones(2_000_000)), oam.YAML))
}

// TestAliasesAreNotWrittenOut holds documents that would be huge if they were.
func TestAliasesAreNotWrittenOut(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [lol]\n")
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	long := "x: &x " + strings.Repeat("y", 1<<20) + "\nz: [*x, *x, *x, *x, *x]\n"
	for name, want := range map[string]struct{ src, sentence string }{
		"bomb":             {bomb.String(), "line 5, column 5: the document has more than the 200000 values that are allowed, aliases written out"},
		"long text":        {long, "the document's values have more than the 4194304 bytes that are allowed, aliases written out"},
		"alias in itself":  {"a: &a [*a]\n", "line 1, column 8: the alias *a stands inside what it refers to"},
		"alias around":     {"a: &a {b: {c: [*a]}}\n", "line 1, column 16: the alias *a stands inside what it refers to"},
		"alias as own key": {"a: &a {*a : b}\n", "line 1, column 8: the alias *a stands inside what it refers to"},
		"the whole of it":  {"&a {a: *a}\n", "line 1, column 8: the alias *a stands inside what it refers to"},
		"keys count, too":  {"x: &x {" + strings.Repeat("k", 1000) + ": v}\ny: [" + strings.Repeat("*x, ", 5000) + "]\n", "4194304 bytes that are allowed"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.Contains(t, refused(t, want.src, oam.YAML), want.sentence, name)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), name)
	}
}

// TestMemoryOfHostileTexts bounds what the largest texts may take.
func TestMemoryOfHostileTexts(t *testing.T) {
	for name, src := range map[string]string{
		"flow":       "[" + strings.Repeat("a,", oam.MaxDocumentBytes/2-2) + "]",
		"pairs":      "{" + strings.Repeat("a,", oam.MaxDocumentBytes/2-2) + "}",
		"block":      strings.Repeat("- a\n", oam.MaxDocumentBytes/4),
		"keys":       strings.Repeat("a:\n", oam.MaxDocumentBytes/3),
		"dashes":     strings.Repeat("- ", oam.MaxDocumentBytes/2),
		"brackets":   strings.Repeat("[", oam.MaxDocumentBytes),
		"quotes":     `{"a":"` + strings.Repeat(`\u0041`, oam.MaxDocumentBytes/6-10) + `"}`,
		"anchors":    strings.Repeat("- &a a\n", oam.MaxDocumentBytes/7),
		"no comment": strings.Repeat("#\n", oam.MaxDocumentBytes/2),
	} {
		for _, format := range []oam.Format{oam.JSON, oam.YAML} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			require.NotEmpty(t, refused(t, src, format), name)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20), "%s as %s", name, format)
		}
	}
}

// TestWhatWasAcceptedCanBeReadBack holds documents whose normal form is larger
// than a document may be.
func TestWhatWasAcceptedCanBeReadBack(t *testing.T) {
	links := make([]string, 12_000)
	for i := range links {
		links[i] = fmt.Sprintf("{type: link, properties: {namespace: a, package: b, interfaces: [], target: k, source_config: [], name: n%d}}", i)
	}
	for name, src := range map[string]string{
		"quotes": withConfigValue("'" + strings.Repeat(`"`, 3<<20) + "'"),
		"links":  withComponent("{name: k, type: component, properties: {image: a}, traits: [" + strings.Join(links, ", ") + "]}"),
		"depth":  withTrait("{type: mine, properties: " + strings.Repeat("[", oam.MaxDepth-6) + strings.Repeat("]", oam.MaxDepth-6) + "}"),
	} {
		want := parse(t, src, oam.YAML).Manifest
		text, err := want.JSON()
		require.NoError(t, err)
		var got oam.Manifest
		require.NoError(t, json.Unmarshal(text, &got), name)
		require.Equal(t, want, got, name)
		_, err = want.YAML()
		require.NoError(t, err)
	}
}
