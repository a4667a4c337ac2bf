package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tidewait/internal/objects"
)

// put makes an object of what write gives, which is what errors say was done. What
// was too large for its bucket once is not made and sent again before the bucket has
// room for it: the error is a [*Full] as before.
func (g *Gateway) put(
	ctx context.Context, store jetstream.ObjectStore, bucket, name, doing string, write func(io.Writer) error,
) (*jetstream.ObjectInfo, error) {
	if err := g.hasRoom(ctx, store, bucket, name); err != nil {
		return nil, err
	}
	pr, pw := io.Pipe()
	go func() { _ = pw.CloseWithError(write(pw)) }()
	from := &counted{Reader: pr}
	info, err := objects.Put(ctx, store, name, from)
	if full := new(Full); errors.As(fullOr(bucket, err), &full) {
		full.cause = fmt.Errorf("%s: %w", doing, err)
		if _, readErr := io.Copy(io.Discard, from); readErr == nil { // it is to be known how much there is
			g.sizes.set(bucket+"/"+name, objects.Size(from.bytes), time.Now())
		}
		_ = pr.CloseWithError(err)
		return nil, full
	}
	_ = pr.CloseWithError(err)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	g.sizes.set(bucket+"/"+name, 0, time.Now())
	return info, nil
}

// hasRoom says that a bucket has no room for what was too large for it before.
func (g *Gateway) hasRoom(ctx context.Context, store jetstream.ObjectStore, bucket, name string) error {
	size := g.sizes.of(bucket+"/"+name, time.Now())
	if size == 0 {
		return nil
	}
	free, err := objects.Free(ctx, store)
	if err != nil {
		return fmt.Errorf("look for room in bucket %s: %w", bucket, err)
	}
	if free >= size {
		return nil
	}
	return &Full{Bucket: bucket, cause: fmt.Errorf("%d bytes are needed and %d are free", size, free)}
}

// counted counts what was read.
type counted struct {
	io.Reader
	bytes int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes += int64(n)
	return n, err
}

// sizes are those of objects that found no room, by bucket and name. It is safe for
// concurrent use.
type sizes struct {
	mu      sync.Mutex
	objects map[string]size
}

type size struct {
	bytes int64
	asked time.Time // when it was of use last
}

// sizeLasts is how long the size of an object is remembered that nobody asks for any
// more. Whoever waits for room asks every few seconds; what is forgotten is sent, and
// refused, once more.
const sizeLasts = time.Hour

// of is the size of an object; 0: it is not known to have found no room.
func (s *sizes) of(object string, now time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.objects[object]
	if ok {
		s.objects[object] = size{known.bytes, now}
	}
	return known.bytes
}

// set remembers the size of an object, or with 0 forgets it, and forgets those that
// were of no use for long.
func (s *sizes) set(object string, bytes int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.objects, func(_ string, known size) bool { return now.Sub(known.asked) > sizeLasts })
	if bytes == 0 {
		delete(s.objects, object)
		return
	}
	if s.objects == nil {
		s.objects = map[string]size{}
	}
	s.objects[object] = size{bytes, now}
}

// locks give each name to one user at a time.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	sync.Mutex
	users int // that have it or wait for it
}

// take waits for a name, which is to be given back by the function that is returned.
func (l *locks) take(name string) (giveBack func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	one := l.held[name]
	if one == nil {
		one = &lock{}
		l.held[name] = one
	}
	one.users++
	l.mu.Unlock()
	one.Lock()
	return func() {
		one.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.held, name)
		}
	}
}
