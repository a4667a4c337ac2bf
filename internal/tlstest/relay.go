package tlstest

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
)

// Relay accepts TLS on the loopback interface, with HTTP/2 as its protocol, and passes
// what is in it on to a server that speaks none. It ends with the test.
func Relay(t testing.TB, config *tls.Config, server string) (address string) {
	t.Helper()
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	var open connections
	t.Cleanup(func() {
		_ = listener.Close()
		open.close()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go open.relay(client, server)
		}
	}()
	return listener.Addr().String()
}

// connections are those of a relay.
type connections struct {
	mu     sync.Mutex
	open   []net.Conn
	closed bool
}

func (c *connections) keep(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close()
	}
	c.open = append(c.open, conn)
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.open {
		_ = conn.Close()
	}
}

func (c *connections) relay(client net.Conn, address string) {
	c.keep(client)
	defer client.Close()
	// A client that is refused reaches nothing behind the relay.
	if client.(*tls.Conn).Handshake() != nil { //nolint:forcetypeassert // the listener makes no other
		return
	}
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	c.keep(server)
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(server, client)
}
