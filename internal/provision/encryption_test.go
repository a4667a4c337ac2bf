package provision_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/payload"
	"tidewait/internal/provision"
)

func codec(t *testing.T, encrypt bool, ids ...string) *payload.Codec {
	t.Helper()
	var paths []string
	for _, id := range ids {
		paths = append(paths, filepath.Join(t.TempDir(), id))
		require.NoError(t, os.WriteFile(paths[len(paths)-1], []byte(strings.Repeat("A", 43)+"="), 0o600))
	}
	keys, err := payload.ReadKeys(paths)
	require.NoError(t, err)
	c, err := payload.NewCodec(keys, encrypt)
	require.NoError(t, err)
	return c
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		name, key string
		codec     *payload.Codec
		says      string
	}{
		{"nobody encrypts", "", codec(t, false), ""},
		{"the key is there and not used yet", "", codec(t, false, "k1"), ""},
		{"it encrypts before the namespace says so", "", codec(t, true, "k1"), ""},
		{"all encrypt", "k1", codec(t, true, "k1"), ""},
		{"the next key is used before the namespace says so", "k1", codec(t, true, "k2", "k1"), ""},
		{"the next key is not used yet", "k2", codec(t, true, "k1", "k2"), ""},
		{"no key", "k1", codec(t, false), `namespace n is encrypted with key "k1", and this process has none: add that key to temporal.encryption_keys`},
		{"another key", "k2", codec(t, true, "k1", "k0"), `namespace n is encrypted with key "k2", and this process has k1, k0: add that key to temporal.encryption_keys`},
		{"plain text", "k1", codec(t, false, "k1"), "namespace n is encrypted, with key \"k1\", and temporal.encryption is none here: " +
			"set it to payloads or all; to turn encryption off, run `tidewait setup` with none first"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := provision.Allows("n", c.key, c.codec)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.says)
		})
	}
}
