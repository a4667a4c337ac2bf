package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARunWhoseJournalHadNoNameYetIsSwept(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "runs", "r1-1.0123456789ab")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "journal.json.new"), nil, 0o600))

	_, err := OpenRuns[nothing](root)

	require.NoError(t, err)
	require.NoDirExists(t, dir)
}
