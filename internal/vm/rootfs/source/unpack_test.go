package source

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

func TestUnpack(t *testing.T) {
	const content = "the tide waits for no one"
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := io.WriteString(w, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for name, stream := range map[string][]byte{
		"gzip": zipped.Bytes(), "zstd": compress(t, content, 8<<20), "neither": []byte(content),
	} {
		r, err := unpack(bytes.NewReader(stream))
		require.NoError(t, err, name)
		got, err := io.ReadAll(r)
		require.NoError(t, err, name)
		require.Equal(t, content, string(got), name)
		require.NoError(t, r.Close())
	}
	for _, short := range []string{"", "ab"} {
		r, err := unpack(strings.NewReader(short))
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, short, string(got))
	}
}

// TestUnpackBoundsMemory: a stream says itself how much memory unpacking it takes.
func TestUnpackBoundsMemory(t *testing.T) {
	r, err := unpack(bytes.NewReader(compress(t, "little", 256<<20)))
	require.NoError(t, err)
	_, err = io.ReadAll(r)
	require.ErrorIs(t, err, zstd.ErrWindowSizeExceeded)
}

// compress is content as a stream whose length is not known at its beginning.
func compress(t *testing.T, content string, window int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(window), zstd.WithSingleSegment(false))
	require.NoError(t, err)
	_, err = io.WriteString(w, content[:1])
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	_, err = io.WriteString(w, content[1:])
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}
