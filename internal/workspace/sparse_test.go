package workspace_test

import (
	"archive/tar"
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/workspace"
)

// TestUnpackRefusesHoles unpacks 3 KiB that would be a terabyte.
func TestUnpackRefusesHoles(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "a", Size: 512, Mode: 0o644, PAXRecords: map[string]string{
		"GNU.xparse.major": "1", "GNU.xparse.minor": "0", "GNU.xparse.name": "a", "GNU.xparse.realsize": "1099511627776",
	}}))
	_, err := w.Write(append([]byte("0\n"), make([]byte, 510)...)) // the map of what is no hole: nothing
	require.NoError(t, err)
	require.NoError(t, w.Close())
	stream := bytes.ReplaceAll(b.Bytes(), []byte("GNU.xparse."), []byte("GNU.sparse.")) // tar.Writer does not write it

	header, err := tar.NewReader(bytes.NewReader(stream)).Next()
	require.NoError(t, err)
	require.Equal(t, int64(1099511627776), header.Size, "the control: it is a terabyte")

	dir := t.TempDir()
	_, err = workspace.Unpack(bytes.NewReader(stream), dir)
	require.EqualError(t, err, `unpack into `+dir+`: "a" has holes, which no file of a checkout has`)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
