package config

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// ConnectNATS connects under the given name, with credentials and TLS as s
// says. The first connection is tried once per server and fails within five
// seconds each; afterwards the connection comes back by itself for as long as
// it takes, and log tells when it goes and returns. A server that has frozen is
// given up after thirty seconds. More options are for connections with a need of
// their own.
func ConnectNATS(s NATS, name string, log *slog.Logger, more ...nats.Option) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name(name),
		nats.Timeout(5 * time.Second),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("lost the connection to NATS, trying again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(conn *nats.Conn) {
			log.Info("connected to NATS again", "server", conn.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			log.Error("NATS reported an error", "subject", subjectOf(sub), "error", err)
		}),
	}
	if s.Credentials != "" {
		options = append(options, nats.UserCredentials(s.Credentials))
	}
	if s.CA != "" {
		options = append(options, nats.RootCAs(s.CA))
	}
	if s.Cert != "" {
		options = append(options, nats.ClientCert(s.Cert, s.Key))
	}
	conn, err := nats.Connect(s.URL, append(options, more...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to NATS at %s: %w", strings.Trim(shown("nats.url", s.URL), `"`), err)
	}
	return conn, nil
}

func subjectOf(sub *nats.Subscription) string {
	if sub == nil {
		return ""
	}
	return sub.Subject
}
