package objects

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrInterrupted is why what is under way ends when the connection is lost.
var ErrInterrupted = errors.New("the connection to NATS was lost")

const (
	// retryPause is between tries after the connection was lost.
	retryPause = 250 * time.Millisecond
	// settleTime is how long after that a server that is just back may refuse.
	settleTime = 30 * time.Second
)

// Unbroken returns a context that ends, with ErrInterrupted as its cause, when
// the connection is lost. What was under way to or from the object store never
// arrives then, and the client would wait for it as long as it may.
func Unbroken(ctx context.Context, nc *nats.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	lost := nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	if !nc.IsConnected() {
		cancel(ErrInterrupted)
	}
	go func() {
		defer nc.RemoveStatusListener(lost)
		select {
		case <-lost:
			cancel(ErrInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Keep stores all of r under a name, in place of what was there. When the
// connection is lost meanwhile it begins again, for as long as ctx lasts.
func Keep(ctx context.Context, nc *nats.Conn, store jetstream.ObjectStore, name string, r io.ReadSeeker) error {
	var tries tries
	for {
		_, err := r.Seek(0, io.SeekStart)
		if err != nil {
			return err
		}
		attempt, stop := Unbroken(ctx, nc)
		_, err = Put(attempt, store, name, r)
		again := err != nil && tries.again(ctx, attempt, err)
		stop()
		switch {
		case again:
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			return err
		}
	}
}

// tries decides whether what failed is tried again.
type tries struct{ until time.Time }

// again waits and reports true when ctx lasts and an attempt was interrupted, had
// no answer from a server that is busy, or failed soon after one of these.
func (t *tries) again(ctx, attempt context.Context, err error) bool {
	switch {
	case errors.Is(err, errMoved):
		return ctx.Err() == nil
	case errors.Is(err, ErrReplaced):
		return false
	}
	if errors.Is(context.Cause(attempt), ErrInterrupted) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		t.until = time.Now().Add(settleTime)
	}
	if ctx.Err() != nil || time.Now().After(t.until) {
		return false
	}
	pause := time.NewTimer(retryPause)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ErrReplaced is why an object cannot be read to its end: another one has its name
// by now.
var ErrReplaced = errors.New("the object was replaced by another one while it was read")

// Open returns a reader of an object. When the connection is lost meanwhile, or the
// same bytes are put in place of the object, it goes on where it was, for as long
// as ctx lasts. Other bytes in its place are the error [ErrReplaced], once some were
// read. An object that is not there is the error of the first Read, and one that is
// removed meanwhile that of a later one.
//
// A client of JetStream that puts an object removes the chunks of the one before,
// and whoever reads those waits for the rest in vain. Two that put the same name at
// once leave the chunks of one of them in the bucket: whoever may do that has to
// agree on who does.
func Open(ctx context.Context, nc *nats.Conn, store jetstream.ObjectStore, name string) io.ReadCloser {
	return &reader{ctx: ctx, nc: nc, store: store, name: name}
}

type reader struct {
	ctx   context.Context //nolint:containedctx // of all reads, as the client's own reader has it
	nc    *nats.Conn
	store jetstream.ObjectStore
	name  string

	at      int64 // bytes that were read
	tries   tries
	attempt context.Context //nolint:containedctx // of the stream
	stop    context.CancelFunc
	stream  *io.PipeReader // nil: to be opened

	mu     sync.Mutex
	digest string // of the object that is read
}

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	for {
		if r.stream == nil {
			r.open()
		}
		n, err := r.stream.Read(p)
		r.at += int64(n)
		if n > 0 || err == nil || err == io.EOF { //nolint:errorlint // a pipe gives it as it is
			return n, err
		}
		if !r.tries.again(r.ctx, r.attempt, err) {
			return 0, err
		}
		_ = r.Close()
	}
}

// open streams the object from where the last stream ended.
func (r *reader) open() {
	unbroken, stop := Unbroken(r.ctx, r.nc)
	ctx, end := context.WithCancelCause(unbroken)
	out, in := io.Pipe()
	unhook := context.AfterFunc(ctx, func() { _ = in.CloseWithError(context.Cause(ctx)) })
	r.attempt, r.stream = ctx, out
	r.stop = func() { unhook(); end(nil); stop() }
	skip := r.at
	go func() { _ = in.CloseWithError(r.copyTo(ctx, in, skip, end)) }()
}

// copyTo may go on for some seconds after ctx has ended with the help of end.
func (r *reader) copyTo(ctx context.Context, w io.Writer, skip int64, end context.CancelCauseFunc) error {
	object, err := Get(ctx, r.store, r.name)
	if err != nil {
		return err
	}
	defer object.Close()
	info, err := object.Info()
	if err == nil {
		err = r.sameAs(info, skip)
	}
	if err != nil {
		return err
	}
	from := &counted{Reader: object}
	over := make(chan struct{})
	defer close(over)
	go r.watch(ctx, from, info.NUID, over, end)
	if _, err = io.CopyN(io.Discard, from, skip); err == nil {
		_, err = io.Copy(w, from)
	}
	if errors.Is(err, jetstream.ErrDigestMismatch) {
		err = errors.Join(r.gone(ctx, info.NUID), err)
	}
	return err
}

// sameAs refuses other bytes than those of which some were read.
func (r *reader) sameAs(info *jetstream.ObjectInfo, read int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if read > 0 && info.Digest != r.digest {
		return ErrReplaced
	}
	r.digest = info.Digest
	return nil
}

// lookInterval is between looks at an object of which nothing arrives.
const lookInterval = time.Second

// watch ends a stream whose object is there no more.
func (r *reader) watch(ctx context.Context, from *counted, nuid string, over <-chan struct{}, end context.CancelCauseFunc) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := from.bytes.Load()
		if now != last {
			last = now
			continue
		}
		if err := r.gone(ctx, nuid); err != nil {
			end(err)
		}
	}
}

// gone says that an object was removed or put again; nil: it is there, or nobody
// can say.
func (r *reader) gone(ctx context.Context, nuid string) error {
	info, err := r.store.GetInfo(ctx, r.name)
	switch {
	case errors.Is(err, jetstream.ErrObjectNotFound):
		return err
	case err == nil && info.NUID != nuid:
		return errMoved
	}
	return nil
}

// errMoved is why the stream of an object ends that was put again.
var errMoved = errors.New("the object was put again")

// counted counts what was read.
type counted struct {
	io.Reader
	bytes atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// Close implements [io.Closer].
func (r *reader) Close() error {
	if r.stream == nil {
		return nil
	}
	r.stop()
	err := r.stream.Close()
	r.stream = nil
	return err
}

// Get is the store's own, but that its reads end within five seconds of ctx, not
// when the deadline of ctx has come.
func Get(ctx context.Context, store jetstream.ObjectStore, name string) (jetstream.ObjectResult, error) {
	return store.Get(undated{ctx}, name)
}

// undated is a context without its deadline. The client's reader looks whether
// its context has ended when the deadline has come, and every five seconds when
// there is none.
type undated struct{ context.Context }

// Deadline implements [context.Context].
func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }
