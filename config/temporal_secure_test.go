package config_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"tidewait/config"
	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/tlstest"
)

// TestTemporalOverTLS reaches a real Temporal through relays that want certificates, or
// an API key.
func TestTemporalOverTLS(t *testing.T) {
	withoutTemporal(t)
	server := devstacktest.Start(t, devstack.Temporal).TemporalAddress
	ours, stranger := tlstest.NewAuthority(t, "ours"), tlstest.NewAuthority(t, "another")
	mutual := tlstest.Relay(t, ours.Config(t, ours.Server(t), true), server)
	keys := tlstest.Keys(t, ours.Config(t, ours.Server(t), false), server, "right")
	elsewhere := tlstest.Relay(t, ours.Config(t, ours.Server(t, "temporal.example.com"), false), server)
	client, other := ours.Client(t, "tidewait"), stranger.Client(t, "tidewait")
	both := func(ca string, p tlstest.Pair) string {
		return fmt.Sprintf("[profile.prod.tls]\nserver_ca_cert_path = %q\nclient_cert_path = %q\nclient_key_path = %q\n", ca, p.Cert, p.Key)
	}
	only := func(ca string) string { return fmt.Sprintf("[profile.prod.tls]\nserver_ca_cert_path = %q\n", ca) }

	const closes = "the server closes the connection: it may want TLS, or a certificate of one of its authorities in tls.client_cert_path"
	for _, c := range []struct{ name, profile, want string }{ // want is empty: it connects
		{"a certificate", profileAt(mutual) + both(ours.File, client), ""},
		{"no certificate", profileAt(mutual) + only(ours.File), closes},
		{"a stranger's certificate", profileAt(mutual) + both(ours.File, other), closes},
		{"a stranger's authority", profileAt(mutual) + both(stranger.File, client), "no authority in tls.server_ca_cert_path has issued the server's certificate"},
		{"no TLS", profileAt(mutual), closes},
		{"another host", profileAt(elsewhere) + only(ours.File), "the server's certificate is of another host: see tls.server_name"},
		{"another host, as named", profileAt(elsewhere) + only(ours.File) + "server_name = \"temporal.example.com\"\n", ""},
		{"TLS to a server without", profileAt(server) + only(ours.File), "the server speaks no TLS"},
		{"a key", profileAt(keys) + "api_key = \"right\"\n" + only(ours.File), ""},
		{"another key", profileAt(keys) + "api_key = \"wrong\"\n" + only(ours.File), "the server does not know api_key"},
		{"no key", profileAt(keys) + only(ours.File), "the server does not know api_key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, filepath.Join(t.TempDir(), "temporal.toml"), c.profile)
			err := reach(t, config.Temporal{ConfigFile: file, Profile: "prod"})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "; "+c.want+" (profile prod of "+file+")")
			require.NotContains(t, err.Error(), "wrong")
		})
	}
}

func profileAt(address string) string {
	return fmt.Sprintf("[profile.prod]\naddress = %q\nnamespace = \"default\"\n", address)
}

func reach(t *testing.T, profile config.Temporal) error {
	t.Helper()
	options, err := config.TemporalOptions(config.Settings{Temporal: profile}, quiet)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return profile.Explain(err)
	}
	defer c.Close()
	_, err = c.CheckHealth(ctx, nil)
	return err
}

// TestFilesOfATemporalProfile names the profile and the file that cannot be used.
func TestFilesOfATemporalProfile(t *testing.T) {
	dir := withoutTemporal(t)
	pair, other := tlstest.NewAuthority(t, "ours").Client(t, "a"), tlstest.NewAuthority(t, "ours").Client(t, "b")
	nothing := write(t, filepath.Join(dir, "nothing.pem"), "nothing")
	for _, c := range []struct{ name, tls, want string }{
		{"no certificate", `client_cert_path = "/nowhere/cert.pem"` + "\n" + `client_key_path = "/nowhere/key.pem"`, "invalid TLS config: failed loading client cert/key path: open /nowhere/cert.pem: no such file or directory"},
		{"the key of another", fmt.Sprintf("client_cert_path = %q\nclient_key_path = %q", pair.Cert, other.Key), "invalid TLS config: failed loading client cert/key path: tls: private key does not match public key"},
		{"no authority", `server_ca_cert_path = "/nowhere/ca.pem"`, "invalid TLS config: failed reading server CA cert path: open /nowhere/ca.pem: no such file or directory"},
		{"no authorities in it", fmt.Sprintf("server_ca_cert_path = %q", nothing), "invalid TLS config: failed adding server CA to CA pool"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, filepath.Join(dir, "temporal.toml"), "[profile.prod]\n[profile.prod.tls]\n"+c.tls+"\n")
			_, err := config.TemporalOptions(config.Settings{Temporal: config.Temporal{ConfigFile: file, Profile: "prod"}}, quiet)
			require.EqualError(t, err, "cannot read Temporal's connection profile prod of "+file+": "+c.want)
		})
	}
}
