package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
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
	identity, err := s.identity()
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(s.URL, append(append(options, identity...), more...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to NATS at %s: %w", s.shownURL(), s.explained(err))
	}
	return conn, nil
}

func (s NATS) shownURL() string { return strings.Trim(shown("nats.url", s.URL), `"`) }

// identity is who the connection is and whom it trusts. Its files are read once to
// say what is wrong with them, and by the client at each connection.
func (s NATS) identity() ([]nats.Option, error) {
	var options []nats.Option
	if s.InboxPrefix != "" {
		options = append(options, nats.CustomInboxPrefix(s.InboxPrefix))
	}
	if s.Credentials != "" {
		if err := checkCredentials(s.Credentials); err != nil {
			return nil, fmt.Errorf("nats.credentials = %q: %w", s.Credentials, err)
		}
		options = append(options, nats.UserCredentials(s.Credentials))
	}
	if s.CA != "" {
		if err := checkAuthorities(s.CA); err != nil {
			return nil, fmt.Errorf("nats.ca = %q: %w", s.CA, err)
		}
		options = append(options, nats.RootCAs(s.CA))
	}
	if s.Cert != "" {
		if _, err := tls.LoadX509KeyPair(s.Cert, s.Key); err != nil {
			return nil, fmt.Errorf("nats.cert = %q, nats.key = %q: %w", s.Cert, s.Key, err)
		}
		options = append(options, nats.ClientCert(s.Cert, s.Key))
	}
	return options, nil
}

func checkCredentials(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if _, err := nkeys.ParseDecoratedJWT(text); err != nil {
		return errNoCredentials
	}
	if _, err := nkeys.ParseDecoratedUserNKey(text); err != nil {
		return errNoCredentials
	}
	return nil
}

func checkAuthorities(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return errNoAuthorities
	}
	return nil
}

var (
	errNoCredentials = errors.New("want the JWT and the seed of a user, as nsc writes them")
	errNoAuthorities = errors.New("want certificates of authorities in PEM")
)

// explained says of a refused connection which setting it is about.
func (s NATS) explained(err error) error {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		remote  *net.OpError
	)
	switch {
	case errors.As(err, &unknown) && s.CA == "":
		return fmt.Errorf("%w; no authority of this machine has issued the server's certificate: name the one that has with nats.ca", err)
	case errors.As(err, &unknown):
		return fmt.Errorf("%w; no authority in nats.ca (%s) has issued the server's certificate", err, s.CA)
	case errors.As(err, &name):
		return fmt.Errorf("%w; the server's certificate is of another host than nats.url names", err)
	case errors.As(err, &invalid):
		return fmt.Errorf("%w; the server's certificate is not valid (nats.url)", err)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("%w; the server speaks no TLS, and nats.url or nats.ca asks for it", err)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return fmt.Errorf("%w; the server does not know %s", err, s.who())
	// A server that wants another certificate closes the connection. Whether its word
	// of why arrives is a matter of luck.
	case errors.Is(err, nats.ErrTLS), errors.As(err, &remote) && remote.Op == "remote error":
		return fmt.Errorf("%w; the server refuses %s", err, s.certificate())
	}
	return err
}

// who is what a server was told of the connection's user.
func (s NATS) who() string {
	switch {
	case s.Credentials != "":
		return fmt.Sprintf("the user of nats.credentials (%s)", s.Credentials)
	case strings.Contains(s.URL, "@"):
		return "the user in nats.url, or that password"
	case s.Cert != "":
		return fmt.Sprintf("the user of nats.cert (%s)", s.Cert)
	}
	return "a user without a name: give one with nats.credentials, nats.cert, or in nats.url"
}

func (s NATS) certificate() string {
	if s.Cert == "" {
		return "a client without a certificate: give it one with nats.cert and nats.key"
	}
	return fmt.Sprintf("the certificate of nats.cert (%s)", s.Cert)
}

func subjectOf(sub *nats.Subscription) string {
	if sub == nil {
		return ""
	}
	return sub.Subject
}
