package snapshot

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm/qemu/sparse"
)

// memoryIdle is how long the memory of a state is kept at hand after its last use.
const memoryIdle = 10 * time.Minute

// NewMemory makes the memory of a machine that is to be saved: a file in memory of
// so many bytes, all zero, which the machine has to use as such.
func NewMemory(bytes int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make the memory of a machine: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if err := f.Truncate(bytes); err != nil {
		f.Close()
		return nil, fmt.Errorf("make the memory of a machine: %w", err)
	}
	return f, nil
}

// sealed is a copy, in memory, of the memory of a state, that nobody can change any
// more: machines map it, and get pages of their own when they write. sum is what it
// has to be; empty is anything.
func sealed(from *os.File, sum string) (*os.File, error) {
	f, err := NewMemory(0)
	if err != nil {
		return nil, err
	}
	if err := fill(f, from, sum); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func fill(f, from *os.File, sum string) error {
	if err := sparse.Copy(f, from); err != nil {
		return err
	}
	const all = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, all); err != nil {
		return fmt.Errorf("seal the memory of a state: %w", err)
	}
	if sum == "" {
		return nil
	}
	found, _, err := sparse.Sum(f)
	if err == nil && found != sum {
		err = fmt.Errorf("the digest of its %s is %s, that of what was written %s", memoryName, found, sum)
	}
	return err
}

// borrow is another descriptor of the memory, which is closed by itself.
func borrow(memory *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(memory.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), memory.Name()), nil
}

// memoryAtHand is the memory of a state, from the disk when it was not used for long.
// It is called with s.mu held.
func (s *Store) memoryAtHand(k *kept, file string) (*os.File, error) {
	if k.memory == nil {
		from, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer from.Close()
		if k.memory, err = sealed(from, k.Memory.Sum); err != nil {
			return nil, err
		}
		k.idle = time.AfterFunc(memoryIdle, func() { s.release(k) })
	}
	k.idle.Reset(memoryIdle)
	return borrow(k.memory)
}

// release lets go of the memory of a state. Machines that use it keep it.
func (s *Store) release(k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.forget()
}

func (k *kept) forget() {
	if k.memory == nil {
		return
	}
	k.idle.Stop()
	k.memory.Close()
	k.memory = nil
}

// Close lets go of what is kept in memory. The store can go on to be used.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		k.forget()
	}
}
