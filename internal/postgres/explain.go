// Package postgres says what a refused connection to Postgres is about.
package postgres

import (
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Codes of a server that does not let somebody in.
const (
	invalidAuthorization = "28000"
	invalidPassword      = "28P01"
)

// Explain adds to an error of a connection which part of postgres.url it is about, where
// it is about one. It adds nothing of the URL itself.
func Explain(err error) error {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		refused *pgconn.PgError
	)
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w; no authority in sslrootcert of postgres.url has issued the server's certificate", err)
	case errors.As(err, &name):
		return fmt.Errorf("%w; the server's certificate is of another host than postgres.url names", err)
	case errors.As(err, &refused) && refused.Code == invalidPassword:
		return fmt.Errorf("%w; the server does not know the user in postgres.url, or that password", err)
	case errors.As(err, &refused) && refused.Code == invalidAuthorization && refused.Message == "connection requires a valid client certificate":
		return fmt.Errorf("%w; the server wants a certificate of one of its authorities: name it with sslcert and sslkey in postgres.url", err)
	case errors.As(err, &refused) && refused.Code == invalidAuthorization:
		return fmt.Errorf("%w; the server takes no such connection: it may want TLS, which is sslmode=verify-full in postgres.url", err)
	}
	return err
}
