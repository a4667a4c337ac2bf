package config_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/config"
)

// keyFile writes a key of one repeated byte.
func keyFile(t *testing.T, name string, b byte) string {
	t.Helper()
	text := map[byte]string{0: strings.Repeat("A", 43) + "=", 1: strings.Repeat("AQEB", 10) + "AQE="}[b]
	return write(t, filepath.Join(t.TempDir(), name), text+"\n")
}

func TestPayloadCodec(t *testing.T) {
	first, second := keyFile(t, "first", 0), keyFile(t, "second", 1)
	for encryption, with := range map[string]string{"none": "", "payloads": "second", "all": "second"} {
		codec, err := config.PayloadCodec(config.Temporal{Encryption: encryption, EncryptionKeys: []string{second, first}})
		require.NoError(t, err)
		require.Equal(t, with, codec.EncryptsWith(), encryption)
		require.Equal(t, []string{"second", "first"}, codec.Keys().IDs())
	}
}

func TestTemporalOptionsEncrypt(t *testing.T) {
	withoutTemporal(t)
	s := config.Settings{Temporal: config.Temporal{Encryption: "payloads", EncryptionKeys: []string{keyFile(t, "k", 0)}}}
	options, err := config.TemporalOptions(s, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	p, err := options.DataConverter.ToPayload("plain text")
	require.NoError(t, err)
	require.Equal(t, "k", string(p.Metadata["encryption-key-id"]))
	require.NotContains(t, string(p.Data), "plain text")

	failure := options.FailureConverter.ErrorToFailure(os.ErrNotExist)
	require.Equal(t, "file does not exist", failure.Message)
	s.Temporal.Encryption = "all"
	options, err = config.TemporalOptions(s, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	failure = options.FailureConverter.ErrorToFailure(os.ErrNotExist)
	require.Equal(t, "Encoded failure", failure.Message)
	require.Equal(t, "k", string(failure.EncodedAttributes.Metadata["encryption-key-id"]))
	require.EqualError(t, options.FailureConverter.FailureToError(failure), "file does not exist")
}

func TestTemporalOptionsRefuseUnsafeKeys(t *testing.T) {
	withoutTemporal(t)
	path := keyFile(t, "k", 0)
	require.NoError(t, os.Chmod(path, 0o644)) //nolint:gosec // that it is too open is the point
	s := config.Settings{Temporal: config.Temporal{Encryption: "all", EncryptionKeys: []string{path}}}
	_, err := config.TemporalOptions(s, slog.New(slog.DiscardHandler))
	require.EqualError(t, err, "temporal.encryption_keys: the key "+path+" is not safe: its mode is 0644, so that others may read or change it; make it 0600")
}
