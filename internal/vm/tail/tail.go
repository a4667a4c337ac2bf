// Package tail keeps the end of what a process says.
package tail

import (
	"bytes"
	"sync"
)

// Tail keeps the last bytes written to it. The zero Tail keeps 16 KiB.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 16 << 10

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(len(p)-tailSize, 0):]...)
	if over := len(t.buf) - tailSize; over > tailSize {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// LastLine is the last line with anything on it.
func (t *Tail) LastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := bytes.TrimSpace(t.buf)
	return string(bytes.ToValidUTF8(bytes.TrimSpace(b[bytes.LastIndexByte(b, '\n')+1:]), nil))
}
