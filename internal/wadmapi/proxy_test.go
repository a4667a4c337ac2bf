package wadmapi_test

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a store and Postgres, and can be cut.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
	// A request with these bytes is let through; then the hook runs, the answer is
	// lost and the connection ends.
	marker []byte
	hook   func()
}

// through starts a proxy and returns the database's address by way of it.
func through(t *testing.T, dbURL string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(dbURL)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, target: u.Host, conns: map[net.Conn]bool{}}
	go p.accept()
	t.Cleanup(func() { _ = listener.Close(); p.cut() })
	u.Host = listener.Addr().String()
	return p, u.String()
}

// cut ends all connections and accepts none until mend.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// loseAnswer arms the marker, once.
func (p *proxy) loseAnswer(marker string, hook func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marker, p.hook = []byte(marker), hook
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.add(client, server) {
			_ = client.Close()
			continue
		}
		lost := make(chan struct{})
		go p.carry(client, server, nil, lost)
		go p.carry(server, client, lost, nil)
	}
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.down {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return !p.down
}

// carry copies one direction: requests with a channel to say that the answer is
// to be lost, answers with the same channel to know it.
func (p *proxy) carry(from, to net.Conn, lost <-chan struct{}, lose chan<- struct{}) {
	defer func() { _ = from.Close(); _ = to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		hook := p.armed(lose, buffer[:n])
		if hook != nil {
			close(lose)
		}
		select {
		case <-lost:
			continue
		default:
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
		if hook != nil {
			hook()
			return
		}
	}
}

func (p *proxy) armed(lose chan<- struct{}, request []byte) (hook func()) {
	if lose == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hook == nil || !bytes.Contains(request, p.marker) {
		return nil
	}
	hook, p.hook = p.hook, nil
	return hook
}
