// Package rootfs keeps the root file systems of images on a node: each is pulled
// once, becomes one read-only file system image, and is kept by the digest of its
// manifest for as long as there is room.
//
// In its directory, DIGEST.erofs is the file system and DIGEST.json says what it
// is; only both together count. What is being made is in the directory "making",
// which is emptied when the store is opened.
//
// Concurrency: Store.mu guards kept, coming and pulls. Nothing is read from a registry
// while it is held. A file system in use has a shared lock (flock) that goes with
// the open file, so that it holds as long as a machine has it, whatever becomes
// of the program that started the machine.
package rootfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/mission"
	"tidewait/internal/vm"
	"tidewait/internal/vm/rootfs/layers"
	"tidewait/internal/vm/rootfs/source"
)

// Options say what a store may do.
type Options struct {
	Dir         string        // for this store alone; required
	Bytes       int64         // of all file systems together, with those that are pulled, but for those in use
	Limits      layers.Limits // of one image
	PullTimeout time.Duration // of one pull
	Source      source.Options
	Logger      *slog.Logger // default: none
}

// Store keeps file systems of images. It is safe for concurrent use.
type Store struct {
	Options
	mu     sync.Mutex
	kept   map[string]*entry // by the digest of the manifest
	coming int64             // bytes of what is being pulled, as far as that is known
	turns  chan struct{}     // of pulls
	pulls  map[string]*pull
}

// entry describes a file system, as its JSON file does.
type entry struct {
	Manifest string            `json:"manifest"`
	Digests  []string          `json:"digests"` // that lead to the manifest, the latest last
	Names    []string          `json:"names"`   // of documents that led to it last, the latest last
	Env      map[string]string `json:"env,omitempty"`
	Bytes    int64             `json:"bytes"`
	used     time.Time         // the time of change of the JSON file
}

// mostAliases is how many names and how many digests of one image are kept.
const mostAliases = 4

// Root is a file system in use. It has to be closed.
type Root struct {
	vm.Root
	Digest string // of what the name of the image leads to
}

// Close lets the file system go.
func (r *Root) Close() error { return r.File.Close() }

const (
	making   = "making"
	imageExt = ".erofs"
	aboutExt = ".json"
)

// Open opens a store, and removes what an earlier one did not finish.
func Open(o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{Options: o, kept: map[string]*entry{}, pulls: map[string]*pull{}, turns: make(chan struct{}, pullsAtOnce)}
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("open the cache of images: %w", err)
	}
	return s, nil
}

func (s *Store) sweep() error {
	if err := os.RemoveAll(filepath.Join(s.Dir, making)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(s.Dir, making), 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), aboutExt); ok {
			if e := s.load(name); e != nil {
				s.kept[e.Manifest] = e
			}
		}
	}
	for _, f := range files {
		name := strings.TrimSuffix(strings.TrimSuffix(f.Name(), aboutExt), imageExt)
		if s.kept["sha256:"+name] == nil && f.Name() != making {
			if err := os.RemoveAll(filepath.Join(s.Dir, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// load reads what a file system is; nil: there is none that counts.
func (s *Store) load(name string) *entry {
	about := filepath.Join(s.Dir, name+aboutExt)
	raw, err := os.ReadFile(about)
	if err != nil {
		return nil
	}
	e := &entry{}
	if json.Unmarshal(raw, e) != nil || e.Manifest != "sha256:"+name {
		return nil
	}
	info, err := os.Stat(about)
	if err != nil {
		return nil
	}
	e.used = info.ModTime()
	if info, err = os.Stat(s.path(e.Manifest, imageExt)); err != nil || info.Size() != e.Bytes {
		return nil
	}
	return e
}

func (s *Store) path(manifest, ext string) string {
	return filepath.Join(s.Dir, strings.TrimPrefix(manifest, "sha256:")+ext)
}

// Get returns the file system of an image, which is pulled when it is not there.
// digest, when not empty, says what the name leads to: what it led to when it was
// looked up before. Its errors are [*vm.Failure] or ctx's.
func (s *Store) Get(ctx context.Context, name, digest string) (*Root, error) {
	image, problem := mission.ParseImage(name)
	if problem != "" {
		return nil, &vm.Failure{Code: vm.ImageInvalid, Message: fmt.Sprintf("the image %q %s", name, problem)}
	}
	if digest != "" {
		image.Digest = digest
	}
	late := &vm.Failure{Code: vm.ImageUnavailable, Message: fmt.Sprintf("it did not come within %s", s.PullTimeout)}
	ctx, cancel := context.WithTimeoutCause(ctx, s.PullTimeout, late)
	defer cancel()
	root, err := s.get(ctx, name, image)
	if f := new(vm.Failure); errors.As(err, &f) {
		return nil, &vm.Failure{Code: f.Code, Message: fmt.Sprintf("the image %s cannot be used: %s", name, f.Message)}
	}
	return root, err
}

func (s *Store) get(ctx context.Context, name string, image mission.Image) (*Root, error) {
	if image.Digest != "" {
		if root := s.take(name, image.Digest, ""); root != nil {
			return root, nil
		}
	}
	found, err := s.Source.Open(ctx, image, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	for {
		if root := s.take(name, found.Digest, found.Manifest); root != nil {
			return root, nil
		}
		image.Digest = found.Manifest
		if err := s.share(ctx, image); err != nil {
			return nil, err
		}
	}
}

// take returns a file system that is there: by the digest of its manifest when
// that is known, or by one that led to it before. It notes what led to it.
func (s *Store) take(name, digest, manifest string) *Root {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *entry
	for _, e := range s.kept {
		if e.Manifest == manifest || e.Manifest == digest || slices.Contains(e.Digests, digest) {
			found = e
		}
	}
	if found == nil {
		return nil
	}
	file, err := s.lock(found)
	if err != nil {
		s.Logger.Warn("a kept image cannot be read and is forgotten", "digest", found.Manifest, "error", err)
		delete(s.kept, found.Manifest)
		return nil
	}
	s.note(found, name, digest)
	return &Root{Root: vm.Root{File: file, Env: found.Env}, Digest: digest}
}

// lock opens a file system so that it is not removed while it is open.
func (s *Store) lock(e *entry) (*os.File, error) {
	file, err := os.Open(s.path(e.Manifest, imageExt))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// note writes down that a name led to a file system. Of a name that leads
// elsewhere now the latest counts.
func (s *Store) note(e *entry, name, digest string) {
	for _, other := range s.kept {
		if i := slices.Index(other.Names, name); i >= 0 && other != e {
			other.Names = slices.Delete(other.Names, i, i+1)
			s.save(other)
		}
	}
	known := slices.Contains(e.Names, name) && (digest == e.Manifest || slices.Contains(e.Digests, digest))
	e.Names = latest(e.Names, name)
	if digest != e.Manifest {
		e.Digests = latest(e.Digests, digest)
	}
	e.used = time.Now()
	if known {
		_ = os.Chtimes(s.path(e.Manifest, aboutExt), e.used, e.used) // else it is only removed earlier
		return
	}
	s.save(e)
}

// save writes what a file system is. Were it lost, so would be the file system,
// and nothing else.
func (s *Store) save(e *entry) {
	if err := s.writeAbout(e); err != nil {
		s.Logger.Warn("it cannot be written down what an image is", "digest", e.Manifest, "error", err)
	}
}

// latest adds a text at the end, or moves it there.
func latest(list []string, text string) []string {
	list = append(slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == text }), text)
	return list[max(0, len(list)-mostAliases):]
}

func (s *Store) writeAbout(e *entry) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Join(s.Dir, making), "about-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(raw)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return errors.Join(os.Rename(tmp.Name(), s.path(e.Manifest, aboutExt)), syncDir(s.Dir))
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// mostKeys is how many keys a node tells.
const mostKeys = 64

// Keys returns by what the images that are kept are known, as
// [mission.ImageKey] has it, those used last first. There are at most 64.
func (s *Store) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := []string{}
	for _, e := range s.byUse() {
		keys = append(keys, e.Manifest)
		keys = append(keys, e.Digests...)
		for _, name := range e.Names {
			if key := mission.ImageKey(name); key == name {
				keys = append(keys, key)
			}
		}
	}
	return keys[:min(len(keys), mostKeys)]
}

// byUse is what is kept, that used last first. Store.mu must be held.
func (s *Store) byUse() []*entry {
	var all []*entry
	for _, e := range s.kept {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int {
		if c := b.used.Compare(a.used); c != 0 {
			return c
		}
		return strings.Compare(a.Manifest, b.Manifest)
	})
	return all
}

// evict removes what was not used for longest until the rest has room, beside what is
// coming. What is in use stays, and so does keep. Store.mu must be held.
func (s *Store) evict(keep *entry) {
	all, sum := s.byUse(), s.coming
	for _, e := range all {
		sum += e.Bytes
	}
	for _, e := range slices.Backward(all) {
		if sum <= s.Bytes {
			return
		}
		if e == keep || !s.remove(e) {
			continue
		}
		sum -= e.Bytes
		s.Logger.Info("an image was removed to make room", "digest", e.Manifest, "bytes", e.Bytes, "names", e.Names)
	}
}

// remove removes a file system unless it is in use.
func (s *Store) remove(e *entry) bool {
	file, err := os.Open(s.path(e.Manifest, imageExt))
	if err == nil {
		defer file.Close()
		if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return false
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	for _, ext := range []string{aboutExt, imageExt} { // without the first, the second does not count
		if err := os.Remove(s.path(e.Manifest, ext)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Logger.Warn("an image cannot be removed", "digest", e.Manifest, "error", err)
			return false
		}
	}
	delete(s.kept, e.Manifest)
	return true
}
