// Package snapshot keeps the saved states of machines, with their memory and disks, in
// a directory: each under a key that is a digest of everything the state depends on,
// written whole or not at all, checked before it is used, and bounded in number and
// size.
package snapshot

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm/qemu/sparse"
)

// Key names what a state depends on.
type Key struct {
	// Host is what the states of all machines of a host depend on, such as its
	// processor and the program that runs them. States of another Host are stale.
	Host []string `json:"host"`
	// Machine is what tells the machines of one host apart.
	Machine []string `json:"machine"`
}

// String is the digest of all of the key, hex.
func (k Key) String() string { return digest(append([]string{k.host()}, k.Machine...)) }

func (k Key) host() string { return digest(k.Host) }

func digest(parts []string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// About describes a state. It lies beside it as JSON, written last: a state
// without it is none.
type About struct {
	Key    string    `json:"key"`
	Host   string    `json:"host"` // digest of Key.Host
	Of     Key       `json:"of"`   // for people
	State  File      `json:"state"`
	Memory File      `json:"memory"`
	Disk   File      `json:"disk"`
	MadeAt time.Time `json:"madeAt"`
}

// File describes one of the files of a state.
type File struct {
	Size  int64  `json:"size"`  // in bytes, with what is zero
	Bytes int64  `json:"bytes"` // without
	Sum   string `json:"sum"`   // that of package sparse
}

// bytes is what a state takes of the limits.
func (a About) bytes() int64 { return a.State.Bytes + a.Memory.Bytes + a.Disk.Bytes }

// Saved is a state that is opened to be restored. Its files are not written to.
type Saved struct {
	State  *os.File // to be read from its start
	Memory *os.File // sealed; to be mapped privately
	Disk   *os.File // as the state knows it; to be copied
}

// Close closes the files.
func (s *Saved) Close() error {
	var err error
	for _, f := range []*os.File{s.State, s.Memory, s.Disk} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Limits bound what is kept.
type Limits struct {
	Count int   // states
	Bytes int64 // of all states together
}

// Store is a directory of states. It is safe for concurrent use. A directory
// belongs to one program at a time.
type Store struct {
	dir    string
	limits Limits

	mu   sync.Mutex
	kept map[string]*kept
}

type kept struct {
	About
	used        time.Time
	state, disk identity    // of the files whose sums were found right
	memory      *os.File    // sealed; nil: it is on the disk only
	idle        *time.Timer // lets go of memory
}

// ErrNone says that no state is kept under a key.
var ErrNone = errors.New("there is no snapshot of such a machine yet")

// DamagedError says that a state was not what had been written. It has been
// removed.
type DamagedError struct{ Why string }

func (e *DamagedError) Error() string { return "the snapshot was damaged: " + e.Why }

// Open uses dir, and makes it when it is not there. What an earlier program
// began and did not finish is removed, and so is what is stale or exceeds the
// limits.
func Open(dir string, host []string, l Limits) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of snapshots: %w", err)
	}
	s := &Store{dir: dir, limits: l, kept: map[string]*kept{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the directory of snapshots: %w", err)
	}
	for _, e := range entries {
		k, err := s.load(e.Name())
		if err == nil && k.Host == digest(host) {
			s.kept[k.Key] = k
		} else if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return nil, fmt.Errorf("remove a snapshot that cannot be used: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.makeRoom(0, 0)
}

const (
	stateName  = "state"
	memoryName = "memory"
	diskName   = "disk"
	aboutName  = "about.json"
	draftMark  = ".new"
)

func (s *Store) load(name string) (*kept, error) {
	file := filepath.Join(s.dir, name, aboutName)
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	k := &kept{}
	if err := json.Unmarshal(data, &k.About); err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if k.Key != name || k.Of.String() != name {
		return nil, fmt.Errorf("%s is not that of its directory", file)
	}
	k.used = info.ModTime()
	return k, nil
}

// Open returns the state of a key. It returns ErrNone when there is none, and a
// *DamagedError when it is not what was written.
func (s *Store) Open(k Key) (*Saved, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := k.String()
	found, ok := s.kept[key]
	if !ok {
		return nil, ErrNone
	}
	saved, err := s.open(found, filepath.Join(s.dir, key))
	if err != nil {
		return nil, errors.Join(&DamagedError{Why: err.Error()}, s.drop(key))
	}
	found.used = time.Now()
	_ = os.Chtimes(filepath.Join(s.dir, key, aboutName), found.used, found.used) // only the order of removal depends on it
	return saved, nil
}

func (s *Store) open(k *kept, dir string) (*Saved, error) {
	return opened(func(saved *Saved) (err error) {
		if saved.State, err = openChecked(filepath.Join(dir, stateName), k.State, &k.state); err != nil {
			return err
		}
		if saved.Memory, err = s.memoryAtHand(k, filepath.Join(dir, memoryName)); err != nil {
			return err
		}
		saved.Disk, err = openChecked(filepath.Join(dir, diskName), k.Disk, &k.disk)
		return err
	})
}

// opened leaves nothing open of what cannot be opened whole.
func opened(open func(*Saved) error) (*Saved, error) {
	saved := &Saved{}
	if err := open(saved); err != nil {
		saved.Close()
		return nil, err
	}
	return saved, nil
}

// Has reports whether a state is kept under a key. Open may find it damaged.
func (s *Store) Has(k Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[k.String()] != nil
}

// identity tells cheaply that a file is the one it was.
type identity struct {
	inode  uint64
	size   int64
	change unix.Timespec
}

// openChecked opens a file that is what was written. The whole is read once for each
// program; after that its change time tells, which no write leaves as it was.
func openChecked(name string, written File, checked *identity) (*os.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if err := check(f, written, checked); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func check(f *os.File, written File, checked *identity) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	now := identity{inode: st.Ino, size: st.Size, change: st.Ctim}
	if now == *checked {
		return nil
	}
	if st.Size != written.Size {
		return fmt.Errorf("its %s has %d bytes, %d were written", filepath.Base(f.Name()), st.Size, written.Size)
	}
	sum, _, err := sparse.Sum(f)
	if err != nil {
		return err
	}
	if sum != written.Sum {
		return fmt.Errorf("the digest of its %s is %s, that of what was written %s", filepath.Base(f.Name()), sum, written.Sum)
	}
	*checked = now
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// Drop removes the state of a key, which failed.
func (s *Store) Drop(k Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(k.String())
}

func (s *Store) drop(key string) error {
	if k := s.kept[key]; k != nil {
		k.forget()
	}
	delete(s.kept, key)
	// The description goes first: half of a removal leaves nothing that is used.
	err := os.Remove(filepath.Join(s.dir, key, aboutName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a snapshot: %w", err)
	}
	return os.RemoveAll(filepath.Join(s.dir, key))
}

// Kept says how many states there are, and how large they are together.
func (s *Store) Kept() (count int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		bytes += k.bytes()
	}
	return len(s.kept), bytes
}

// LeastUsed is when the state was last used that would have to go for another,
// and zero while there is room for one more.
func (s *Store) LeastUsed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) < s.limits.Count {
		return time.Time{}
	}
	return s.byUse()[0].used
}

func (s *Store) byUse() []*kept {
	all := make([]*kept, 0, len(s.kept))
	for _, k := range s.kept {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b *kept) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.Key, b.Key))
	})
	return all
}

// makeRoom removes what was not used for longest until so many more states and
// bytes fit.
func (s *Store) makeRoom(count int, bytes int64) error {
	for _, k := range s.kept {
		count, bytes = count+1, bytes+k.bytes()
	}
	for _, k := range s.byUse() {
		if count <= s.limits.Count && bytes <= s.limits.Bytes {
			return nil
		}
		if err := s.drop(k.Key); err != nil {
			return err
		}
		count, bytes = count-1, bytes-k.bytes()
	}
	return nil
}
