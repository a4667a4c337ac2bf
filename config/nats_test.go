package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/natstest"
)

var quiet = slog.New(slog.DiscardHandler)

func TestConnectNATSComesBack(t *testing.T) {
	first := natstest.Start(t, &server.Options{})
	port := first.Addr().(*net.TCPAddr).Port
	conn, err := config.ConnectNATS(config.NATS{URL: first.ClientURL()}, "test", quiet)
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, "test", conn.Opts.Name)
	require.Equal(t, -1, conn.Opts.MaxReconnect)

	first.Shutdown()
	first.WaitForShutdown()
	natstest.Start(t, &server.Options{Port: port})
	// Being connected is not enough: the end of the first server may not have
	// been noticed yet.
	require.Eventually(t, func() bool { return conn.Stats().Reconnects == 1 && conn.IsConnected() }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, conn.FlushTimeout(5*time.Second))
}

func TestConnectNATSTellsWhere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	_, err = config.ConnectNATS(config.NATS{URL: "nats://me:secret@" + address}, "test", quiet)
	require.EqualError(t, err, "cannot connect to NATS at nats://"+address+": nats: no servers available for connection")
}

func TestConnectNATSWithTLS(t *testing.T) {
	dir := t.TempDir()
	cert, certFile, keyFile := selfSigned(t, dir)
	authorities := x509.NewCertPool()
	authorities.AddCert(cert.Leaf)
	s := natstest.Start(t, &server.Options{TLS: true, TLSVerify: true, TLSTimeout: 5, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: authorities, ClientAuth: tls.RequireAndVerifyClientCert,
	}})

	conn, err := config.ConnectNATS(config.NATS{URL: s.ClientURL(), CA: certFile, Cert: certFile, Key: keyFile}, "test", quiet)
	require.NoError(t, err)
	conn.Close()
	_, err = config.ConnectNATS(config.NATS{URL: s.ClientURL(), CA: certFile}, "test", quiet)
	require.Error(t, err, "a client without a certificate")
	_, err = config.ConnectNATS(config.NATS{URL: s.ClientURL()}, "test", quiet)
	require.ErrorContains(t, err, "certificate signed by unknown authority")
}

func TestConnectNATSWithCredentials(t *testing.T) {
	operator, account, user := keyPair(t, nkeys.CreateOperator), keyPair(t, nkeys.CreateAccount), keyPair(t, nkeys.CreateUser)
	accountJWT, err := jwt.NewAccountClaims(public(t, account)).Encode(operator)
	require.NoError(t, err)
	userJWT, err := jwt.NewUserClaims(public(t, user)).Encode(account)
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	creds, err := jwt.FormatUserConfig(userJWT, seed)
	require.NoError(t, err)
	credentials := write(t, filepath.Join(t.TempDir(), "user.creds"), string(creds))

	accounts := &server.MemAccResolver{}
	require.NoError(t, accounts.Store(public(t, account), accountJWT))
	s := natstest.Start(t, &server.Options{TrustedKeys: []string{public(t, operator)}, AccountResolver: accounts})

	conn, err := config.ConnectNATS(config.NATS{URL: s.ClientURL(), Credentials: credentials}, "test", quiet)
	require.NoError(t, err)
	conn.Close()
	_, err = config.ConnectNATS(config.NATS{URL: s.ClientURL()}, "test", quiet)
	require.EqualError(t, err, "cannot connect to NATS at "+s.ClientURL()+": nats: Authorization Violation")
}

func keyPair(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	pair, err := create()
	require.NoError(t, err)
	return pair
}

func public(t *testing.T, pair nkeys.KeyPair) string {
	t.Helper()
	key, err := pair.PublicKey()
	require.NoError(t, err)
	return key
}

func selfSigned(t *testing.T, dir string) (cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "test"},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	cert, err = tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	return cert, write(t, filepath.Join(dir, "cert.pem"), string(certPEM)), write(t, filepath.Join(dir, "key.pem"), string(keyPEM))
}
