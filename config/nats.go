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
		err = fmt.Errorf("cannot connect to NATS at %s: %w", s.shownURL(), err)
		if meaning := s.Meaning(err); meaning != "" {
			err = fmt.Errorf("%w; %s", err, meaning)
		}
		return nil, err
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
			return nil, &FileFault{fmt.Sprintf("nats.credentials = %q", s.Credentials), err}
		}
		options = append(options, nats.UserCredentials(s.Credentials))
	}
	if s.CA != "" {
		if err := checkAuthorities(s.CA); err != nil {
			return nil, &FileFault{fmt.Sprintf("nats.ca = %q", s.CA), err}
		}
		options = append(options, nats.RootCAs(s.CA))
	}
	if s.Cert != "" {
		if _, err := tls.LoadX509KeyPair(s.Cert, s.Key); err != nil {
			return nil, &FileFault{fmt.Sprintf("nats.cert = %q, nats.key = %q", s.Cert, s.Key), err}
		}
		options = append(options, nats.ClientCert(s.Cert, s.Key))
	}
	return options, nil
}

// FileFault is a file of the settings that cannot be used for a connection.
type FileFault struct {
	Setting string // with its value
	Err     error
}

func (f *FileFault) Error() string { return f.Setting + ": " + f.Err.Error() }

func (f *FileFault) Unwrap() error { return f.Err }

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

// Meaning says which setting the error of a refused connection is about; empty: about
// none.
func (s NATS) Meaning(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		remote  *net.OpError
	)
	switch {
	case errors.As(err, &unknown) && s.CA == "":
		return "no authority of this machine has issued the server's certificate: name the one that has with nats.ca"
	case errors.As(err, &unknown):
		return fmt.Sprintf("no authority in nats.ca (%s) has issued the server's certificate", s.CA)
	case errors.As(err, &name):
		return "the server's certificate is of another host than nats.url names"
	case errors.As(err, &invalid):
		return "the server's certificate is not valid (nats.url)"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server speaks no TLS, and nats.url or nats.ca asks for it"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return "the server does not know " + s.who()
	// A server that wants another certificate closes the connection. Whether its word
	// of why arrives is a matter of luck.
	case errors.Is(err, nats.ErrTLS), errors.As(err, &remote) && remote.Op == "remote error":
		return "the server refuses " + s.certificate()
	}
	return ""
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
