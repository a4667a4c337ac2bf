package columns_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/columns"
)

func TestColumns(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "node-a": 6, "über": 4, "…": 1, "█░": 2,
		"日本語": 6, "한국": 4, "ＡＢ": 4, "ｶﾅ": 2,
		"🚀 up":          5,
		"e\u0301":       1, // an accent on the letter before
		"a\u200db":      2, // joined
		"\u2764\ufe0f":  1, // a variant
		"\x1b\x07":      0, // control characters move nothing on
		"\u0e01\u0e34x": 2, // a vowel above
	} {
		require.Equal(t, want, columns.Of(text), "%q", text)
	}
}

func TestCut(t *testing.T) {
	require.Equal(t, "node-a", columns.Cut("node-a", 6))
	require.Equal(t, "node…", columns.Cut("node-a", 5))
	require.Equal(t, "日本…", columns.Cut("日本語", 5))
	require.Equal(t, "日…", columns.Cut("日本語", 4), "half a character cannot be shown")
	require.Equal(t, "e\u0301…", columns.Cut("e\u0301xyz", 2), "an accent stays on its letter")
	rapid.Check(t, func(t *rapid.T) {
		text, most := rapid.String().Draw(t, "text"), rapid.IntRange(1, 20).Draw(t, "most")
		cut := columns.Cut(text, most)
		require.LessOrEqual(t, columns.Of(cut), most)
		require.True(t, utf8.ValidString(cut))
	})
}
