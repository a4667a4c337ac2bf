package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	temporallog "go.temporal.io/sdk/log"

	"tidewait/internal/logkey"
	"tidewait/internal/payload"
)

const (
	defaultTemporalAddress   = "127.0.0.1:7233"
	defaultTemporalNamespace = "default"
)

// TemporalOptions returns the options of a Temporal client: the profile of
// Temporal's own settings file, the TEMPORAL_* variables over it, and
// temporal.address and temporal.namespace over both. HostPort and Namespace of
// the result are never empty. An unknown key in the file, a profile that is
// named and not there, and TLS files that cannot be read are errors.
func TemporalOptions(s Settings, log *slog.Logger) (client.Options, error) {
	file := s.Temporal.ConfigFile
	if file != "" {
		if _, err := os.Stat(file); err != nil {
			return client.Options{}, fmt.Errorf("cannot read the file that temporal.config_file names: %w", err)
		}
	}
	options, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{
		ConfigFilePath:    file,
		ConfigFileProfile: s.Temporal.Profile,
		ConfigFileStrict:  true,
	})
	if err != nil {
		return client.Options{}, fmt.Errorf("cannot read Temporal's connection %s: %w", s.Temporal.source(), err)
	}
	options.HostPort = firstOf(s.Temporal.Address, options.HostPort, defaultTemporalAddress)
	options.Namespace = firstOf(s.Temporal.Namespace, options.Namespace, defaultTemporalNamespace)
	// Messages are small; compressing them costs more than it saves.
	options.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{}
	codec, err := PayloadCodec(s.Temporal)
	if err != nil {
		return client.Options{}, err
	}
	options.DataConverter = payload.Converter(codec)
	options.FailureConverter = payload.FailureConverter(options.DataConverter, s.Temporal.Encryption == EncryptAll)
	options.Logger = temporallog.NewStructuredLogger(slog.New(logkey.Temporal(log.Handler())))
	return options, nil
}

// source names the profile and its file as a person finds them.
func (t Temporal) source() string {
	profile := firstOf(t.Profile, os.Getenv("TEMPORAL_PROFILE"), envconfig.DefaultConfigFileProfile)
	file := firstOf(t.ConfigFile, os.Getenv("TEMPORAL_CONFIG_FILE"))
	if file == "" {
		file = "temporal.toml at Temporal's default place"
		if dir, err := os.UserConfigDir(); err == nil {
			file = filepath.Join(dir, "temporalio", "temporal.toml")
		}
	}
	return fmt.Sprintf("profile %s of %s", profile, file)
}

const closes = "the server closes the connection: it may want TLS, or a certificate of one of its authorities in tls.client_cert_path"

// Explain adds Meaning to an error of a connection to Temporal.
func (t Temporal) Explain(err error) error {
	if meaning := t.Meaning(err); meaning != "" {
		return fmt.Errorf("%w; %s", err, meaning)
	}
	return err
}

// Meaning says which part of the profile an error of a connection to Temporal is about;
// empty: about none. Causes are words by the time they arrive here.
func (t Temporal) Meaning(err error) string {
	text := err.Error()
	for _, c := range []struct{ words, meaning string }{
		{"signed by unknown authority", "no authority in tls.server_ca_cert_path has issued the server's certificate"},
		{"x509: cannot validate", "the server's certificate is of another host: see tls.server_name"},
		{"x509: certificate is valid for", "the server's certificate is of another host: see tls.server_name"},
		{"x509: certificate has expired", "the server's certificate has expired"},
		{"first record does not look like a TLS handshake", "the server speaks no TLS"},
		// Whether its word of why arrives before the end does is a matter of luck.
		{"remote error: tls: ", closes},
		{"error reading server preface", closes},
		{"broken pipe", closes},
		{"connection reset by peer", closes},
		{"Unauthenticated", "the server does not know api_key"},
		{"unauthorized", "the server does not allow this to api_key, or to the certificate"},
		{"PermissionDenied", "the server does not allow this to api_key, or to the certificate"},
	} {
		if strings.Contains(text, c.words) {
			return c.meaning + " (" + t.source() + ")"
		}
	}
	return ""
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
