package source

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"tidewait/internal/vm"
)

// A layer may grow so many times its size when it is unpacked, beyond what any
// layer may.
const (
	maxRatio = 200
	anyRatio = 64 << 20 // bytes
)

// Layer is one layer of an image.
type Layer struct {
	from       origin
	descriptor v1.Descriptor
	diffID     string
}

// Size returns how many bytes are sent for the layer.
func (l Layer) Size() int64 { return l.descriptor.Size }

// Read gives the layer's tar stream to read, and then checks that all of it was
// what the digests of the image say. What read made of it counts only when Read
// succeeds. Its errors are those of read, [*vm.Failure] or ctx's.
func (l Layer) Read(ctx context.Context, read func(io.Reader) error) error {
	blob, err := l.from.blob(ctx, l.descriptor)
	if err != nil {
		return explain(ctx, err)
	}
	defer blob.Close()
	sent := &counted{from: blob, digest: sha256.New(), ctx: ctx, most: l.descriptor.Size}
	content, err := unpack(sent)
	if err != nil {
		return l.broken(ctx, sent, &unpacked{err: err}, err)
	}
	defer content.Close()
	tar := &unpacked{from: content, digest: sha256.New(), sent: sent}
	err = read(tar)
	if err == nil {
		_, err = io.Copy(io.Discard, tar)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, sent)
	}
	if err != nil {
		return l.broken(ctx, sent, tar, err)
	}
	return l.check(sent, tar)
}

// broken says why a layer could not be read. What is wrong with what was sent
// comes before what that led to.
func (l Layer) broken(ctx context.Context, sent *counted, tar *unpacked, err error) error {
	var failure *vm.Failure
	if ctx.Err() != nil || errors.As(err, &failure) {
		return explain(ctx, err)
	}
	if sent.err == nil {
		_, _ = io.Copy(io.Discard, sent) // how it ends is in sent
	}
	switch {
	case ctx.Err() != nil || errors.As(sent.err, &failure):
		return explain(ctx, sent.err)
	case sent.err != nil && sent.n < l.descriptor.Size:
		return unavailable("its layer %s broke off after %d of %d bytes", l.descriptor.Digest, sent.n, l.descriptor.Size)
	case sum(sent.digest) != l.descriptor.Digest.String():
		return l.check(sent, tar)
	case tar.err != nil:
		return invalid("its layer %s cannot be unpacked: %v", l.descriptor.Digest, tar.err)
	}
	return err
}

func (l Layer) check(sent *counted, tar *unpacked) error {
	switch {
	case sent.n != l.descriptor.Size:
		return unavailable("its layer %s broke off after %d of %d bytes", l.descriptor.Digest, sent.n, l.descriptor.Size)
	case sum(sent.digest) != l.descriptor.Digest.String():
		return invalid("what was sent for its layer %s has the digest %s", l.descriptor.Digest, sum(sent.digest))
	case sum(tar.digest) != l.diffID:
		return invalid("its layer %s unpacks to %s, and its configuration says %s", l.descriptor.Digest, sum(tar.digest), l.diffID)
	}
	return nil
}

func sum(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// counted is what is sent for a layer.
type counted struct {
	ctx    context.Context
	from   io.Reader
	digest hash.Hash
	n      int64
	most   int64
	err    error // that ended it, but io.EOF
}

func (c *counted) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		c.err = context.Cause(c.ctx)
		return 0, c.err
	}
	n, err := c.from.Read(p)
	c.digest.Write(p[:n])
	if c.n += int64(n); c.n > c.most {
		err = invalid("more was sent for a layer than its %d bytes", c.most)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// maxWindow bounds what unpacking a layer takes of memory, in bytes. It is the
// most that zstd's own program uses unless it is told to use more.
const maxWindow = 128 << 20

// unpack returns what a stream unpacks to, by the way it begins: that of gzip, of
// zstd, or of neither.
func unpack(sent io.Reader) (io.ReadCloser, error) {
	r := bufio.NewReaderSize(sent, 64<<10)
	magic, err := r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(r)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}

// unpacked is what a layer unpacks to.
type unpacked struct {
	from   io.Reader
	digest hash.Hash
	n      int64
	sent   *counted
	err    error // that ended it, but io.EOF
}

func (u *unpacked) Read(p []byte) (int, error) {
	if u.sent.ctx.Err() != nil { // a little of what is sent may unpack to much
		return 0, context.Cause(u.sent.ctx)
	}
	n, err := u.from.Read(p)
	u.digest.Write(p[:n])
	if u.n += int64(n); u.n > anyRatio+maxRatio*u.sent.n {
		err = invalid("a layer of %d bytes unpacks to more than %d bytes", u.sent.most, u.n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		u.err = err
	}
	return n, err
}
