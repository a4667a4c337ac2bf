package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIDFromHost(t *testing.T) {
	for host, want := range map[string]string{
		"rack-1":                 "rack-1",
		"rack-1.example.com":     "rack-1-example-com",
		"räck_2":                 "r-ck_2",
		strings.Repeat("a", 100): strings.Repeat("a", 63),
		"":                       "",
	} {
		require.Equal(t, want, idFromHost(host))
	}
}

func TestEffectiveID(t *testing.T) {
	id, err := Node{ID: "n1"}.EffectiveID()
	require.NoError(t, err)
	require.Equal(t, "n1", id)
	id, err = Gateway{}.EffectiveID()
	require.NoError(t, err)
	require.Regexp(t, `^[A-Za-z0-9_-]{1,63}$`, id)
}

func TestEnvironmentNamesAreUnique(t *testing.T) {
	require.Len(t, keyByEnv, len(keys))
}
