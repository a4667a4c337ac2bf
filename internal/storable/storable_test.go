package storable_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/storable"
)

func TestText(t *testing.T) {
	require.Equal(t, "a new disk, für Ann", storable.Text("a new disk, für Ann"))
	require.Equal(t, "a\uFFFDb", storable.Text("a\x00b"))
	require.Equal(t, "a\uFFFDb", storable.Text("a\xff\xfeb"), "in a row they are one")
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		got := storable.Text(text)
		require.True(t, utf8.ValidString(got) && !strings.ContainsRune(got, 0))
		if utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
			require.Equal(t, text, got)
		}
	})
}
