package guest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"

	"tidewait/internal/vm"
)

const (
	maxDeleted = 1_000_000
	// tarEntry is what an entry may take in the stream beyond its content: its
	// header, padding and the extended headers of a long name and link.
	tarEntry = 16 << 10
	tarTail  = 1 << 20
)

// tarChunks reads the payloads of TAR frames as one stream. It ends at the
// first frame of another kind, which it keeps.
type tarChunks struct {
	conn    *Conn
	kind    Kind
	payload []byte
	ended   bool // kind and payload are of the frame that follows the stream
	err     error
}

func (c *tarChunks) Read(p []byte) (int, error) {
	for !c.ended && c.err == nil && len(c.payload) == 0 {
		c.kind, c.payload, c.err = c.conn.Read()
		if errors.Is(c.err, io.EOF) {
			c.err = errConnectionEnded
		}
		c.ended = c.err == nil && c.kind != KindTar
	}
	if c.err != nil {
		return 0, c.err
	}
	if c.ended {
		return 0, io.EOF
	}
	n := copy(p, c.payload)
	c.payload = c.payload[n:]
	return n, nil
}

// errConnectionEnded keeps the end of the connection apart from the end of the
// stream in it.
var errConnectionEnded = errors.New("its connection ended")

// sinkError is a failure to write what was received.
type sinkError struct{ err error }

func (e *sinkError) Error() string { return e.err.Error() }

type sink struct{ w io.Writer }

func (s sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		err = &sinkError{err}
	}
	return n, err
}

// receiveTar copies a tar stream to w, checks every entry while it passes, and
// returns what arrived.
func receiveTar(chunks *tarChunks, limits vm.Limits, w io.Writer) (Tally, *streamDigests, error) {
	digests := newStreamDigests()
	bound := limits.Bytes + int64(limits.Files+1)*tarEntry + tarTail
	limited := &io.LimitedReader{R: chunks, N: bound}
	stream := io.TeeReader(limited, io.MultiWriter(digests, sink{w}))

	tally, err := checkTar(stream, limits)
	if err == nil {
		// What follows the end marker belongs to the stream and to its digest.
		_, err = io.Copy(io.Discard, stream)
	}
	switch {
	case chunks.ended && chunks.kind == KindFail:
		return Tally{}, digests, nil // the caller reads the guest's reason
	case limited.N == 0 && !chunks.ended:
		return Tally{}, nil, tooLarge(limits)
	case chunks.ended && errors.Is(err, io.ErrUnexpectedEOF):
		return Tally{}, nil, collectFailed("the tar stream from the machine broke off")
	case err != nil:
		return Tally{}, nil, err
	}
	tally.Sum = SumText(digests.sum)
	return tally, digests, nil
}

// checkTar reads a tar stream up to its end marker. Errors of the stream itself
// are returned as they are, others are failures.
func checkTar(stream io.Reader, limits vm.Limits) (Tally, error) {
	var m Tally
	tr := tar.NewReader(stream)
	for entries := 1; ; entries++ {
		h, err := tr.Next()
		if err == io.EOF {
			return m, nil
		}
		if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) {
			return m, collectFailed("the machine sent a broken tar stream: %v", err)
		}
		if err != nil {
			return m, err
		}
		if err := checkEntry(h); err != nil {
			return m, collectFailed("the machine sent what it must not: %v", err)
		}
		if h.Typeflag != tar.TypeDir {
			m.Files++
		}
		if entries > limits.Files || h.Size > limits.Bytes-m.Bytes {
			return m, tooLarge(limits)
		}
		m.Bytes += h.Size
		if _, err := io.Copy(io.Discard, tr); err != nil {
			return m, err
		}
	}
}

func checkEntry(h *tar.Header) error {
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	if err := CheckName(name); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
		if h.Mode&^0o777 != 0 {
			return fmt.Errorf("%q has the mode %o; only permissions are allowed", name, h.Mode)
		}
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxName || strings.ContainsRune(h.Linkname, 0) {
			return fmt.Errorf("the symbolic link %q has an impossible target", name)
		}
	default:
		return fmt.Errorf("%q is neither a regular file nor a directory nor a symbolic link (type %q)", name, h.Typeflag)
	}
	return nil
}

func collectFailed(format string, args ...any) error {
	return &vm.Failure{Code: vm.CollectFailed, Message: fmt.Sprintf(format, args...)}
}

func tooLarge(l vm.Limits) error {
	return &vm.Failure{
		Code:    vm.ResultsTooLarge,
		Message: fmt.Sprintf("the results are larger than %d files and %d bytes; collect less, or raise the limit", l.Files, l.Bytes),
	}
}
