package tlstest

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
)

// Keys is a relay that lets nobody through to a gRPC server who does not show the key,
// as `authorization: Bearer KEY`. It ends with the test.
func Keys(t testing.TB, config *tls.Config, server, key string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: server})
	proxy.FlushInterval = -1
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	proxy.Transport = transport
	s := &http.Server{TLSConfig: config, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // of a test
		if r.Header.Get("Authorization") == "Bearer "+key {
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "16") // unauthenticated
		w.Header().Set("Grpc-Message", "no such key")
	})}
	t.Cleanup(func() {
		_ = s.Close()
		transport.CloseIdleConnections()
	})
	go func() { _ = s.ServeTLS(listener, "", "") }()
	return listener.Addr().String()
}
