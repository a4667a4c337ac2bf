package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"tidewait/config"
	"tidewait/internal/codecserver"
	"tidewait/internal/privatefile"
)

// maxToken is more than any token has.
const maxToken = 4 << 10

func codecServerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "codec-server",
		Short: "Decrypt for Temporal's Web UI and the temporal command",
		Long: `Decrypt for Temporal's Web UI and the temporal command until SIGINT or SIGTERM, with
the keys of temporal.encryption_keys.

Whoever it answers can read everything. It listens on loopback, answers pages of
codec.origins only and, with codec.token_file, those who have the token.`,
		Example: "  tidewait-worker codec-server --codec.origins http://127.0.0.1:8233\n" +
			"  temporal workflow show -w phase.nightly.build --codec-endpoint http://127.0.0.1:8081",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, log, err := settings(cmd)
			if err != nil {
				return err
			}
			return serveCodec(cmd.Context(), s, log, func(url string) {
				fmt.Fprintf(cmd.OutOrStdout(), "codec %s\nready codec\n", url)
			})
		},
	}
	cmd.Flags().String("codec.address", "", "host:port to listen at (default 127.0.0.1:8081)")
	cmd.Flags().StringSlice("codec.origins", nil, "origins of Web UIs that may ask")
	cmd.Flags().String("codec.token-file", "", "file with the token that must come with every request")
	return cmd
}

func serveCodec(ctx context.Context, s config.Settings, log *slog.Logger, up func(url string)) error {
	codec, err := config.PayloadCodec(s.Temporal)
	if err != nil {
		return usageError{err}
	}
	if len(codec.Keys().IDs()) == 0 {
		return usageError{fmt.Errorf("temporal.encryption_keys names no key: there is nothing to decrypt with")}
	}
	token, err := readToken(s.Codec.TokenFile)
	if err != nil {
		return usageError{err}
	}
	l, err := net.Listen("tcp", s.Codec.Address)
	if err != nil {
		return fmt.Errorf("listen at codec.address: %w", err)
	}
	up("http://" + l.Addr().String())
	return codecserver.Serve(ctx, l, codecserver.Options{Codec: codec, Origins: s.Codec.Origins, Token: token, Log: log})
}

// readToken returns the token of a file; of no file none.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := privatefile.Read(path, maxToken)
	if err != nil {
		return "", fmt.Errorf("the file %s, which codec.token_file names, %w", path, err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("the file %s, which codec.token_file names, is empty", path)
	}
	return token, nil
}
