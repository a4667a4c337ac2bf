package guest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// MaxFrame bounds the bytes of a frame after its length.
const MaxFrame = 1 << 20

// ChunkSize is how many bytes of a stream are put into one frame.
const ChunkSize = 128 << 10

const lengthSize = 4

// ErrProtocol is matched by errors about frames that break the protocol.
var ErrProtocol = errors.New("the guest protocol was broken")

// Conn reads and writes frames. One goroutine may read while any number write.
type Conn struct {
	stream io.ReadWriteCloser
	r      *bufio.Reader
	frame  []byte

	mu  sync.Mutex // held while writing a frame
	out []byte
}

// NewConn returns a Conn over stream.
func NewConn(stream io.ReadWriteCloser) *Conn {
	return &Conn{stream: stream, r: bufio.NewReaderSize(stream, 64<<10)}
}

// Read returns the next frame. The payload is valid until the next Read. A
// stream that ends between frames is io.EOF, inside one io.ErrUnexpectedEOF.
func (c *Conn) Read() (Kind, []byte, error) {
	var head [lengthSize]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > MaxFrame {
		return 0, nil, fmt.Errorf("%w: a frame says it has %d bytes; 1 to %d are allowed", ErrProtocol, n, MaxFrame)
	}
	if cap(c.frame) < int(n) {
		c.frame = make([]byte, max(int(n), ChunkSize+1))
	}
	frame := c.frame[:n]
	if _, err := io.ReadFull(c.r, frame); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return Kind(frame[0]), frame[1:], nil
}

// Write sends a frame whose payload is the given parts one after another.
func (c *Conn) Write(kind Kind, parts ...[]byte) error {
	n := 1
	for _, p := range parts {
		n += len(p)
	}
	if n > MaxFrame {
		return fmt.Errorf("a %s frame of %d bytes is larger than the %d that are allowed", kind, n, MaxFrame)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = binary.BigEndian.AppendUint32(c.out[:0], uint32(n))
	c.out = append(c.out, byte(kind))
	for _, p := range parts {
		c.out = append(c.out, p...)
	}
	_, err := c.stream.Write(c.out)
	return err
}

// WriteJSON sends a control frame.
func (c *Conn) WriteJSON(kind Kind, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	return c.Write(kind, b)
}

// Close closes the stream, which ends reads and writes that are waiting.
func (c *Conn) Close() error { return c.stream.Close() }

// Decode reads the payload of a control frame into v.
func Decode(kind Kind, payload []byte, v any) error {
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrProtocol, kind, err)
	}
	return nil
}
