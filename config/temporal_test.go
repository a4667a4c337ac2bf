package config_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/config"
)

const profiles = `
[profile.default]
address = "default.example.com:7233"
namespace = "of-default"

[profile.prod]
address = "prod.example.com:7233"
namespace = "of-prod"
api_key = "key"
`

// withoutTemporal clears what the machine's own Temporal settings would add.
func withoutTemporal(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	for _, name := range []string{"TEMPORAL_CONFIG_FILE", "TEMPORAL_PROFILE"} {
		t.Setenv(name, "")
	}
	return dir
}

func TestTemporalOptionsPrecedence(t *testing.T) {
	file := write(t, filepath.Join(withoutTemporal(t), "temporal.toml"), profiles)
	for _, c := range []struct {
		name                       string
		temporal                   config.Temporal
		env                        map[string]string
		wantAddress, wantNamespace string
	}{
		{"nothing", config.Temporal{}, nil, "127.0.0.1:7233", "default"},
		{"default profile", config.Temporal{ConfigFile: file}, nil, "default.example.com:7233", "of-default"},
		{"named profile", config.Temporal{ConfigFile: file, Profile: "prod"}, nil, "prod.example.com:7233", "of-prod"},
		{"profile and file from the environment", config.Temporal{}, map[string]string{
			"TEMPORAL_CONFIG_FILE": file, "TEMPORAL_PROFILE": "prod",
		}, "prod.example.com:7233", "of-prod"},
		{"environment over profile", config.Temporal{ConfigFile: file}, map[string]string{
			"TEMPORAL_ADDRESS": "env.example.com:1", "TEMPORAL_NAMESPACE": "of-env",
		}, "env.example.com:1", "of-env"},
		{"settings over environment", config.Temporal{ConfigFile: file, Address: "set.example.com:2", Namespace: "of-set"}, map[string]string{
			"TEMPORAL_ADDRESS": "env.example.com:1", "TEMPORAL_NAMESPACE": "of-env",
		}, "set.example.com:2", "of-set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			options, err := config.TemporalOptions(config.Settings{Temporal: c.temporal}, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			require.Equal(t, c.wantAddress, options.HostPort)
			require.Equal(t, c.wantNamespace, options.Namespace)
		})
	}
}

func TestTemporalOptionsCarryCredentialsAndLog(t *testing.T) {
	file := write(t, filepath.Join(withoutTemporal(t), "temporal.toml"), profiles)
	var out bytes.Buffer
	s := config.Settings{Temporal: config.Temporal{ConfigFile: file, Profile: "prod"}}
	options, err := config.TemporalOptions(s, slog.New(slog.NewTextHandler(&out, nil)))
	require.NoError(t, err)
	require.NotNil(t, options.Credentials)
	require.NotNil(t, options.ConnectionOptions.TLS, "an API key needs TLS")
	options.Logger.Warn("said", "by", "the client")
	require.Contains(t, out.String(), `level=WARN msg=said by="the client"`)
}

func TestTemporalOptionsRefusals(t *testing.T) {
	dir := withoutTemporal(t)
	good := write(t, filepath.Join(dir, "temporal.toml"), profiles)
	unknown := write(t, filepath.Join(dir, "unknown.toml"), "[profile.default]\nadress = \"x\"\n")
	missing := filepath.Join(dir, "missing.toml")
	for _, c := range []struct {
		name     string
		temporal config.Temporal
		want     string
	}{
		{"missing file", config.Temporal{ConfigFile: missing}, "cannot read the file that temporal.config_file names: stat " + missing + ": no such file or directory"},
		{"missing profile", config.Temporal{ConfigFile: good, Profile: "test"}, "cannot read Temporal's connection profile test of " + good + ": unable to find profile test in config data"},
		{"unknown key", config.Temporal{ConfigFile: unknown}, "cannot read Temporal's connection profile default of " + unknown + ": failed parsing config: key(s) unrecognized: profile.default.adress"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.TemporalOptions(config.Settings{Temporal: c.temporal}, slog.New(slog.DiscardHandler))
			require.EqualError(t, err, c.want)
		})
	}
}
