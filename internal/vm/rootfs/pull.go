package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"tidewait/internal/mission"
	"tidewait/internal/vm"
	"tidewait/internal/vm/rootfs/erofs"
	"tidewait/internal/vm/rootfs/layers"
)

// pull is a pull that may have several who wait for it.
type pull struct {
	waiting int
	cancel  context.CancelCauseFunc
	done    chan struct{}
	err     error // once done is closed
}

var errNobodyWaits = errors.New("nobody waits for it any more")

// share waits for the pull of an image, which it begins when there is none. The
// pull ends when nobody waits for it.
func (s *Store) share(ctx context.Context, image mission.Image) error {
	p := s.join(image)
	defer s.leave(p)
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// join takes part in the pull of an image, whose digest is that of its manifest.
func (s *Store) join(image mission.Image) *pull {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pulls[image.Digest]; p != nil && p.waiting > 0 {
		p.waiting++
		return p
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	p := &pull{waiting: 1, cancel: cancel, done: make(chan struct{})}
	s.pulls[image.Digest] = p
	go func() {
		e, err := s.pull(ctx, image)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.kept[e.Manifest] = e
			s.evict(e)
		}
		if s.pulls[image.Digest] == p {
			delete(s.pulls, image.Digest)
		}
		p.err = err
		cancel(nil)
		close(p.done)
	}()
	return p
}

func (s *Store) leave(p *pull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.waiting--; p.waiting == 0 {
		p.cancel(errNobodyWaits)
	}
}

// pullsAtOnce bounds the memory and the room that pulls take.
const pullsAtOnce = 2

// pull makes the file system of an image, when it is its turn.
func (s *Store) pull(ctx context.Context, image mission.Image) (*entry, error) {
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	began := time.Now()
	late := &vm.Failure{Code: vm.ImageUnavailable, Message: fmt.Sprintf("it did not come within %s", s.PullTimeout)}
	ctx, cancel := context.WithTimeoutCause(ctx, s.PullTimeout, late)
	defer cancel()
	e, sent, err := s.make(ctx, image)
	if err != nil {
		s.Logger.Warn("an image was not pulled", "digest", image.Digest, "error", err)
		if f := new(vm.Failure); !errors.As(err, &f) && ctx.Err() == nil {
			err = &vm.Failure{Code: vm.ImageUnavailable, Message: fmt.Sprintf("this node cannot keep it: %v", err)}
		}
		return nil, err
	}
	s.Logger.Info("an image was pulled", "digest", e.Manifest, "sent_bytes", sent, "bytes", e.Bytes, "took", time.Since(began).Round(time.Millisecond))
	return e, nil
}

// make pulls the layers of an image into a new file system. sent is the size of
// what was sent.
func (s *Store) make(ctx context.Context, image mission.Image) (e *entry, sent int64, err error) {
	found, err := s.Source.Open(ctx, image, runtime.GOARCH)
	if err != nil {
		return nil, 0, err
	}
	file, err := os.CreateTemp(filepath.Join(s.Dir, making), "image-")
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			_ = os.Remove(file.Name()) // else it goes when the store is opened again
		}
	}()
	room := &room{store: s}
	defer room.end()
	for _, layer := range found.Layers {
		sent += layer.Size()
	}
	room.need(min(sent, s.Limits.Bytes)) // more is refused below, and nothing has to go for it
	to := erofs.NewWriter(&growing{WriteSeeker: file, room: room, next: sent})
	tree := layers.New(to, s.Limits)
	for _, layer := range found.Layers {
		if err := layer.Read(ctx, func(tar io.Reader) error { return tree.Add(tar) }); err != nil {
			return nil, sent, err
		}
	}
	if err := errors.Join(to.Finish(tree.Root()), file.Chmod(0o444), file.Sync()); err != nil {
		return nil, sent, err
	}
	e = &entry{Manifest: found.Manifest, Env: found.Env, Bytes: to.Written(), used: time.Now()}
	if err := os.Rename(file.Name(), s.path(e.Manifest, imageExt)); err != nil {
		return nil, sent, err
	}
	return e, sent, errors.Join(syncDir(s.Dir), s.writeAbout(e))
}
