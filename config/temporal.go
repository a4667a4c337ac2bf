package config

import (
	"fmt"
	"log/slog"
	"os"

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
		return client.Options{}, fmt.Errorf("cannot read Temporal's connection profile: %w", err)
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

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
