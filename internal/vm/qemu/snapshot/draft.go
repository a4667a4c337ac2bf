package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"time"
)

// Draft is a state that is being written. It is used by one goroutine, and
// ended with Publish or Discard.
type Draft struct {
	store  *Store
	dir    string
	file   *os.File
	about  About
	digest hash.Hash
}

// Draft begins to write the state of a key.
func (s *Store) Draft(k Key) (*Draft, error) {
	dir, err := os.MkdirTemp(s.dir, k.String()[:12]+".*"+draftMark)
	if err != nil {
		return nil, fmt.Errorf("begin a snapshot: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, stateName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("begin a snapshot: %w", err)
	}
	return &Draft{
		store: s, dir: dir, file: f, digest: sha256.New(),
		about: About{Key: k.String(), Host: k.host(), Of: k},
	}, nil
}

// Write implements [io.Writer]. It fails when the state is larger than all
// states together may be.
func (d *Draft) Write(p []byte) (int, error) {
	if d.about.Bytes+int64(len(p)) > d.store.limits.Bytes {
		return 0, fmt.Errorf("the snapshot is larger than the %d bytes that all together may have", d.store.limits.Bytes)
	}
	n, err := d.file.Write(p)
	d.digest.Write(p[:n])
	d.about.Bytes += int64(n)
	return n, err
}

// Open returns what was written, to be read from its start.
func (d *Draft) Open() (*os.File, error) { return os.Open(d.file.Name()) }

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
	d.about.SHA256 = hex.EncodeToString(d.digest.Sum(nil))
	d.about.MadeAt = time.Now().UTC().Truncate(time.Second)
	description, err := json.MarshalIndent(d.about, "", "  ")
	if err != nil {
		return err
	}
	if err := d.file.Sync(); err != nil {
		return err
	}
	if err := d.file.Close(); err != nil {
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
	if err := s.makeRoom(1, d.about.Bytes); err != nil {
		return err
	}
	if err := os.Rename(d.dir, filepath.Join(s.dir, d.about.Key)); err != nil {
		return err
	}
	s.kept[d.about.Key] = &kept{About: d.about, used: time.Now()}
	return nil
}

// Discard removes the draft.
func (d *Draft) Discard() {
	d.file.Close()
	os.RemoveAll(d.dir)
}
