package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/config"
)

func privateFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestServeCodecRefuses(t *testing.T) {
	key, empty := privateFile(t, "k1", strings.Repeat("A", 43)+"=\n"), privateFile(t, "empty", "\n")
	open := privateFile(t, "token", "sesame")
	require.NoError(t, os.Chmod(open, 0o644)) //nolint:gosec // that it is too open is the point
	for _, c := range []struct {
		name        string
		keys        []string
		token, says string
	}{
		{"no key", nil, "", "temporal.encryption_keys names no key: there is nothing to decrypt with"},
		{"an empty token", []string{key}, empty, "the file " + empty + ", which codec.token_file names, is empty"},
		{"a token for all to read", []string{key}, open, "the file " + open + ", which codec.token_file names, is not safe: its mode is 0644, so that others may read or change it; make it 0600"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := config.Defaults()
			s.Temporal.EncryptionKeys, s.Codec.TokenFile, s.Codec.Address = c.keys, c.token, "127.0.0.1:0"
			err := serveCodec(t.Context(), s, slog.New(slog.DiscardHandler), func(string) { t.Error("it serves") })
			require.EqualError(t, err, c.says)
			require.Equal(t, 2, exitCode(err))
		})
	}
}

// TestCodecServer runs the command as a person would, and asks it.
func TestCodecServer(t *testing.T) {
	t.Setenv("TIDEWAIT_TEMPORAL_ENCRYPTION_KEYS", privateFile(t, "k1", strings.Repeat("A", 43)+"="))
	root := rootCommand()
	root.SetArgs([]string{"codec-server", "--codec.address", "127.0.0.1:0", "--codec.token-file", privateFile(t, "token", "sesame\n"), "--codec.origins", "http://ui.example.com,http://127.0.0.1:8233"})
	out, said := io.Pipe()
	root.SetOut(said)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- root.ExecuteContext(ctx) }()

	buf := make([]byte, 200)
	n, err := out.Read(buf)
	require.NoError(t, err)
	url, rest, _ := strings.Cut(strings.TrimPrefix(string(buf[:n]), "codec "), "\n")
	require.Equal(t, "ready codec\n", rest)
	for token, code := range map[string]int{"sesame": 200, "other": 401} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/encode", bytes.NewReader([]byte("{}")))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Origin", "http://127.0.0.1:8233")
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, code, res.StatusCode)
	}
	stop()
	require.NoError(t, <-ended)
}
