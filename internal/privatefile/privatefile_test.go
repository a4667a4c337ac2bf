package privatefile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/privatefile"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(path, []byte("12345678"), 0o600))
	for mode, says := range map[fs.FileMode]string{
		0o600: "", 0o400: "", 0o640: "", 0o440: "",
		0o604: "is not safe: its mode is 0604, so that others may read or change it; make it 0600",
		0o660: "is not safe: its mode is 0660, so that others may read or change it; make it 0600",
		0o602: "is not safe: its mode is 0602, so that others may read or change it; make it 0600",
		0o601: "is not safe: its mode is 0601, so that others may read or change it; make it 0600",
		0o644: "is not safe: its mode is 0644, so that others may read or change it; make it 0600",
	} {
		require.NoError(t, os.Chmod(path, mode))
		data, err := privatefile.Read(path, 8)
		if says == "" {
			require.NoError(t, err, "%o", mode)
			require.Equal(t, "12345678", string(data))
			continue
		}
		require.EqualError(t, err, says)
	}
}

func TestReadRefusals(t *testing.T) {
	dir := t.TempDir()
	long, pipe := filepath.Join(dir, "long"), filepath.Join(dir, "pipe")
	require.NoError(t, os.WriteFile(long, []byte("123456789"), 0o600))
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for path, says := range map[string]string{
		filepath.Join(dir, "none"): "cannot be read: no such file or directory",
		dir:                        "is not a regular file",
		pipe:                       "is not a regular file",
		long:                       "is larger than 8 bytes",
	} {
		_, err := privatefile.Read(path, 8)
		require.EqualError(t, err, says)
	}
}
