package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm/qemu/sparse"
)

// Draft is a state that is being written. It is used by one goroutine, and
// ended with Publish or Discard.
type Draft struct {
	store               *Store
	dir                 string
	state, memory, disk *os.File
	about               About
}

// Draft begins to write the state of a key. Its memory and its disk are empty until
// they are kept.
func (s *Store) Draft(k Key) (*Draft, error) {
	dir, err := os.MkdirTemp(s.dir, k.String()[:12]+".*"+draftMark)
	if err != nil {
		return nil, fmt.Errorf("begin a snapshot: %w", err)
	}
	d := &Draft{store: s, dir: dir, about: About{Key: k.String(), Host: k.host(), Of: k}}
	for name, f := range map[string]**os.File{stateName: &d.state, memoryName: &d.memory, diskName: &d.disk} {
		if *f, err = os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			break
		}
	}
	if err != nil {
		d.Discard()
		return nil, fmt.Errorf("begin a snapshot: %w", err)
	}
	return d, nil
}

// Write implements [io.Writer] for what a machine says of itself. It fails when that
// is larger than all states together may be.
func (d *Draft) Write(p []byte) (int, error) {
	if d.about.State.Bytes+int64(len(p)) > d.store.limits.Bytes {
		return 0, d.tooLarge()
	}
	n, err := d.state.Write(p)
	d.about.State.Bytes += int64(n)
	return n, err
}

func (d *Draft) tooLarge() error {
	return fmt.Errorf("the snapshot is larger than the %d bytes that all together may have", d.store.limits.Bytes)
}

// KeepMemory keeps a copy of the memory of the machine, which has been stopped. It
// fails when that is larger than all states together may be.
func (d *Draft) KeepMemory(memory *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(memory.Fd()), &st); err != nil {
		return err
	}
	if st.Blocks*512 > d.store.limits.Bytes {
		return d.tooLarge()
	}
	return sparse.Copy(d.memory, memory)
}

// KeepDisk keeps a copy of the disk of the machine, which has been stopped.
func (d *Draft) KeepDisk(disk *os.File) error { return sparse.Copy(d.disk, disk) }

// Open returns what was written.
func (d *Draft) Open() (*Saved, error) {
	return opened(func(saved *Saved) (err error) {
		if saved.State, err = os.Open(d.state.Name()); err != nil {
			return err
		}
		if saved.Memory, err = sealed(d.memory, ""); err != nil {
			return err
		}
		saved.Disk, err = os.Open(d.disk.Name())
		return err
	})
}

// Publish makes the draft the state of its key, in place of an older one, and
// removes what is stale or was not used for longest when the limits ask for it.
func (d *Draft) Publish() error {
	err := d.publish()
	if err != nil {
		d.Discard()
		return fmt.Errorf("keep a snapshot: %w", err)
	}
	return nil
}

func (d *Draft) publish() error {
	err := errors.Join(finish(d.state, &d.about.State), finish(d.memory, &d.about.Memory), finish(d.disk, &d.about.Disk))
	if err != nil {
		return err
	}
	if d.about.bytes() > d.store.limits.Bytes {
		return d.tooLarge()
	}
	d.about.MadeAt = time.Now().UTC().Truncate(time.Second)
	description, err := json.MarshalIndent(d.about, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.dir, aboutName), append(description, '\n'), 0o600); err != nil {
		return err
	}
	s := d.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, k := range s.kept {
		if k.Host != d.about.Host {
			if err := s.drop(key); err != nil {
				return err
			}
		}
	}
	if err := s.drop(d.about.Key); err != nil {
		return err
	}
	if err := s.makeRoom(1, d.about.bytes()); err != nil {
		return err
	}
	if err := os.Rename(d.dir, filepath.Join(s.dir, d.about.Key)); err != nil {
		return err
	}
	s.kept[d.about.Key] = &kept{About: d.about, used: time.Now()}
	return nil
}

// finish writes a file to the disk, closes it and describes it.
func finish(f *os.File, about *File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	about.Size = info.Size()
	if about.Sum, about.Bytes, err = sparse.Sum(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// Discard removes the draft.
func (d *Draft) Discard() {
	d.state.Close()
	d.memory.Close()
	d.disk.Close()
	os.RemoveAll(d.dir)
}
