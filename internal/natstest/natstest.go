// Package natstest gives tests a NATS server of their own, in their process.
package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Start starts a server on the loopback interface, at a free port unless o has
// one, and stops it when the test ends.
func Start(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.NoLog, o.NoSigs = "127.0.0.1", true, true
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatalf("cannot make a NATS server: %v", err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server does not start")
	}
	return s
}

// Connect connects to a server and closes the connection when the test ends.
func Connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatalf("cannot connect to NATS at %s: %v", url, err)
	}
	t.Cleanup(conn.Close)
	return conn
}
