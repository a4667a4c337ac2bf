package sparse

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func create(t *rapid.T, dir, name string) *os.File {
	f, err := os.Create(filepath.Join(dir, name))
	require.NoError(t, err)
	return f
}

// TestCopyAndSum writes parts of a large file, some of them zeros, and compares the
// copy's content, size and sum, and what it takes of the disk.
func TestCopyAndSum(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		from, to := create(t, dir, "from"), create(t, dir, "to")
		defer from.Close()
		defer to.Close()
		size := rapid.Int64Range(0, 3<<20).Draw(t, "size")
		require.NoError(t, from.Truncate(size))
		content := make([]byte, size)
		for range rapid.IntRange(0, 6).Draw(t, "parts") {
			part := bytes.Repeat([]byte{rapid.SampledFrom([]byte{0, 'x'}).Draw(t, "byte")}, rapid.IntRange(1, 20_000).Draw(t, "length"))
			at := rapid.Int64Range(0, max(size-1, 0)).Draw(t, "at")
			part = part[:min(int64(len(part)), size-at)]
			_, err := from.WriteAt(part, at)
			require.NoError(t, err)
			copy(content[at:], part)
		}
		require.NoError(t, Copy(to, from))
		got, err := os.ReadFile(to.Name())
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, got))

		sum, held, err := Sum(from)
		require.NoError(t, err)
		copied, heldByCopy, err := Sum(to)
		require.NoError(t, err)
		require.Equal(t, sum, copied)
		require.Equal(t, held, heldByCopy)
		filled := create(t, dir, "filled") // has no holes
		defer filled.Close()
		_, err = filled.Write(content)
		require.NoError(t, err)
		whole, _, err := Sum(filled)
		require.NoError(t, err)
		require.Equal(t, sum, whole)

		if size == 0 {
			return
		}
		at := rapid.Int64Range(0, size-1).Draw(t, "changed")
		_, err = filled.WriteAt([]byte{content[at] ^ 1}, at)
		require.NoError(t, err)
		changed, _, err := Sum(filled)
		require.NoError(t, err)
		require.NotEqual(t, sum, changed)
	})
}

func TestHolesStayHoles(t *testing.T) {
	dir := t.TempDir()
	from, err := os.Create(filepath.Join(dir, "from"))
	require.NoError(t, err)
	defer from.Close()
	to, err := os.Create(filepath.Join(dir, "to"))
	require.NoError(t, err)
	defer to.Close()
	require.NoError(t, from.Truncate(1<<30))
	_, err = from.WriteAt([]byte("in the middle"), 1<<29)
	require.NoError(t, err)
	require.NoError(t, Copy(to, from))
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(to.Fd()), &st))
	require.Equal(t, int64(1<<30), st.Size)
	require.Less(t, st.Blocks*512, int64(1<<20))
	_, held, err := Sum(to)
	require.NoError(t, err)
	require.Equal(t, int64(4096), held)
}

// TestSumIsOfWhatIsDocumented keeps sums that were written down valid.
func TestSumIsOfWhatIsDocumented(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer f.Close()
	sum, _, err := Sum(f)
	require.NoError(t, err)
	require.Equal(t, "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc", sum, "of eight zeros: the size")
}
