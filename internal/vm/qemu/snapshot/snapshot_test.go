package snapshot

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var host = []string{"image a", "QEMU 7.2"}

func key(machine ...string) Key { return Key{Host: host, Machine: machine} }

func open(t *testing.T, dir string, l Limits) *Store {
	t.Helper()
	s, err := Open(dir, host, l)
	require.NoError(t, err)
	return s
}

func publish(t *testing.T, s *Store, k Key, content string) {
	t.Helper()
	d, err := s.Draft(k)
	require.NoError(t, err)
	_, err = io.WriteString(d, content)
	require.NoError(t, err)
	require.NoError(t, d.Publish())
}

func read(t *testing.T, s *Store, k Key) string {
	t.Helper()
	f, err := s.Open(k)
	require.NoError(t, err)
	defer f.Close()
	content, err := io.ReadAll(f.State)
	require.NoError(t, err)
	return string(content)
}

// entries are the names in the directory.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestKey(t *testing.T) {
	base := Key{Host: []string{"a", "b"}, Machine: []string{"c", "d"}}
	require.Equal(t, "fee8bda007df6890e1c22a45b7c07bb431ac697c0f512d5402fc82f58cc56f10", base.String())
	for _, other := range []Key{
		{Host: []string{"a", "x"}, Machine: []string{"c", "d"}},
		{Host: []string{"a", "b"}, Machine: []string{"c", "x"}},
		{Host: []string{"a", "b"}, Machine: []string{"c", "d", ""}},
		{Host: []string{"a", "b", "c"}, Machine: []string{"d"}},
		{Host: []string{"ab"}, Machine: []string{"c", "d"}},
	} {
		require.NotEqual(t, base.String(), other.String(), "%v", other)
	}
}

func TestKeepsWhatWasWritten(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Limits{Count: 2, Bytes: 100})
	_, err := s.Open(key("m"))
	require.ErrorIs(t, err, ErrNone)

	publish(t, s, key("m"), "state of m")
	publish(t, s, key("n"), "state of n")
	require.Equal(t, "state of m", read(t, s, key("m")))
	require.Equal(t, "state of m", read(t, s, key("m")), "it is read from its start each time")
	require.Equal(t, "state of n", read(t, s, key("n")))
	count, bytes := s.Kept()
	require.Equal(t, []int64{2, 20}, []int64{int64(count), bytes})

	publish(t, s, key("m"), "another state of m")
	require.Equal(t, "another state of m", read(t, s, key("m")))

	again := open(t, dir, Limits{Count: 2, Bytes: 100})
	require.Equal(t, "another state of m", read(t, again, key("m")))
	require.Equal(t, "state of n", read(t, again, key("n")))
}

// TestDisk keeps a disk beside a state, and finds out when it is not the one.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Limits{Count: 2, Bytes: 10_000})
	disk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	require.NoError(t, err)
	defer disk.Close()
	require.NoError(t, disk.Truncate(1<<20))
	_, err = disk.WriteAt([]byte("a file system"), 8192)
	require.NoError(t, err)
	keep := func(most int64) error {
		d, err := s.Draft(key("m"))
		require.NoError(t, err)
		_, err = io.WriteString(d, "state")
		require.NoError(t, err)
		require.NoError(t, d.KeepDisk(disk))
		s.limits.Bytes = most
		return d.Publish()
	}
	require.EqualError(t, keep(4100), "keep a snapshot: the snapshot is larger than the 4100 bytes that all together may have")
	require.Empty(t, entries(t, dir))
	require.NoError(t, keep(4101))
	_, kept := s.Kept()
	require.Equal(t, int64(4101), kept, "the state, and what of the disk is not zero")

	saved, err := s.Open(key("m"))
	require.NoError(t, err)
	want, err := os.ReadFile(disk.Name())
	require.NoError(t, err)
	got, err := io.ReadAll(saved.Disk)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
	require.NoError(t, saved.Close())

	f, err := os.OpenFile(filepath.Join(dir, key("m").String(), "disk"), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("x"), 1<<19)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = s.Open(key("m"))
	damaged := new(DamagedError)
	require.ErrorAs(t, err, &damaged)
	require.Contains(t, damaged.Why, "the digest of its disk is")
	require.Empty(t, entries(t, dir))
}

// TestMemory keeps the memory of a machine, gives it to several readers that cannot
// change it, lets go of it, and finds out when it is not what was written.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	limits := Limits{Count: 2, Bytes: 10_000}
	s := open(t, dir, limits)
	memory, err := NewMemory(1 << 20)
	require.NoError(t, err)
	defer memory.Close()
	_, err = memory.WriteAt([]byte("what a guest knows"), 40960)
	require.NoError(t, err)
	d, err := s.Draft(key("m"))
	require.NoError(t, err)
	require.NoError(t, d.KeepMemory(memory))
	draft, err := d.Open()
	require.NoError(t, err)
	requireSealed(t, draft.Memory)
	require.NoError(t, draft.Close())
	require.NoError(t, d.Publish())
	_, kept := s.Kept()
	require.Equal(t, int64(4096), kept)

	one, err := s.Open(key("m"))
	require.NoError(t, err)
	two, err := s.Open(key("m"))
	require.NoError(t, err)
	requireSealed(t, one.Memory)
	require.NoError(t, one.Close())
	s.Close()
	requireSealed(t, two.Memory)
	require.NoError(t, two.Close())
	again, err := s.Open(key("m"))
	require.NoError(t, err)
	requireSealed(t, again.Memory)
	s.release(s.kept[key("m").String()])
	require.Nil(t, s.kept[key("m").String()].memory)
	require.NoError(t, again.Close())

	f, err := os.OpenFile(filepath.Join(dir, key("m").String(), "memory"), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("W"), 40960)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = s.Open(key("m"))
	damaged := new(DamagedError)
	require.ErrorAs(t, err, &damaged)
	require.Contains(t, damaged.Why, "the digest of its memory is")
	require.Empty(t, entries(t, dir))

	s.limits.Bytes = 4095
	d, err = s.Draft(key("m"))
	require.NoError(t, err)
	require.EqualError(t, d.KeepMemory(memory), "the snapshot is larger than the 4095 bytes that all together may have")
	d.Discard()
}

// requireSealed reads what TestMemory wrote, and cannot write.
func requireSealed(t *testing.T, memory *os.File) {
	t.Helper()
	info, err := memory.Stat()
	require.NoError(t, err)
	require.Equal(t, int64(1<<20), info.Size())
	got := make([]byte, 18)
	_, err = memory.ReadAt(got, 40960)
	require.NoError(t, err)
	require.Equal(t, "what a guest knows", string(got))
	_, err = memory.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, unix.EPERM)
	require.ErrorIs(t, memory.Truncate(0), unix.EPERM)
	_, err = unix.Mmap(int(memory.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.ErrorIs(t, err, unix.EPERM)
}

func TestOnlyItsOwnerReadsIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	s := open(t, dir, Limits{Count: 1, Bytes: 100})
	publish(t, s, key("m"), "state")
	require.NoError(t, filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, name)
		return nil
	}))
}

func TestDraft(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Limits{Count: 1, Bytes: 10})
	d, err := s.Draft(key("m"))
	require.NoError(t, err)
	_, err = io.WriteString(d, "12345")
	require.NoError(t, err)
	f, err := d.Open()
	require.NoError(t, err)
	content, err := io.ReadAll(f.State)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, "12345", string(content))
	_, err = s.Open(key("m"))
	require.ErrorIs(t, err, ErrNone, "a draft is not a state")

	_, err = io.WriteString(d, "678901")
	require.EqualError(t, err, "the snapshot is larger than the 10 bytes that all together may have")
	d.Discard()
	require.Empty(t, entries(t, dir))
}

// TestDamaged changes what was written. Each time the state is gone afterwards.
func TestDamaged(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, state string)
		why    string
	}{
		{"truncated", func(t *testing.T, f string) { require.NoError(t, os.Truncate(f, 3)) }, "its state has 3 bytes, 5 were written"},
		{"another byte", func(t *testing.T, f string) { require.NoError(t, os.WriteFile(f, []byte("stat3"), 0o600)) }, "the digest of its state is"},
		{"replaced", func(t *testing.T, f string) {
			require.NoError(t, os.WriteFile(f+"2", []byte("other"), 0o600))
			require.NoError(t, os.Rename(f+"2", f))
		}, "the digest of its state is"},
		{"gone", func(t *testing.T, f string) { require.NoError(t, os.Remove(f)) }, "no such file"},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				dir := t.TempDir()
				s := open(t, dir, Limits{Count: 2, Bytes: 100})
				publish(t, s, key("m"), "state")
				publish(t, s, key("n"), "other state")
				require.Equal(t, "state", read(t, s, key("m")))
				c.damage(t, filepath.Join(dir, key("m").String(), "state"))
				if restarted {
					s = open(t, dir, Limits{Count: 2, Bytes: 100})
				}
				_, err := s.Open(key("m"))
				damaged := new(DamagedError)
				require.ErrorAs(t, err, &damaged)
				require.Contains(t, damaged.Why, c.why)
				_, err = s.Open(key("m"))
				require.ErrorIs(t, err, ErrNone)
				require.Equal(t, []string{key("n").String()}, entries(t, dir))
				publish(t, s, key("m"), "state")
				require.Equal(t, "state", read(t, s, key("m")))
			})
		}
	}
}

// TestRemovesWhatCannotBeUsed opens a directory with leftovers of every kind.
func TestRemovesWhatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Limits{Count: 9, Bytes: 1000})
	for _, m := range []string{"good", "no description", "half a description", "another's description"} {
		publish(t, s, key(m), "state")
	}
	publish(t, s, Key{Host: []string{"image b"}, Machine: []string{"good"}}, "stale state")
	require.Equal(t, []string{}, filter(entries(t, dir), key("good").String()), "a state of another host makes the older ones stale")

	s = open(t, dir, Limits{Count: 9, Bytes: 1000})
	for _, m := range []string{"good", "no description", "half a description", "another's description"} {
		publish(t, s, key(m), "state")
	}
	about := func(m string) string { return filepath.Join(dir, key(m).String(), "about.json") }
	require.NoError(t, os.Remove(about("no description")))
	require.NoError(t, os.Truncate(about("half a description"), 20))
	others, err := os.ReadFile(about("good"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(about("another's description"), others, 0o600))
	_, err = s.Draft(key("unfinished"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a file"), nil, 0o600))

	s = open(t, dir, Limits{Count: 9, Bytes: 1000})
	require.Equal(t, []string{key("good").String()}, entries(t, dir))
	require.Equal(t, "state", read(t, s, key("good")))

	_, err = Open(dir, []string{"image c"}, Limits{Count: 9, Bytes: 1000})
	require.NoError(t, err)
	require.Empty(t, entries(t, dir), "the states of another image are stale")
}

func filter(names []string, want string) []string {
	found := []string{}
	for _, n := range names {
		if n == want {
			found = append(found, n)
		}
	}
	return found
}

// TestLimits keeps what was used last.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Limits{Count: 3, Bytes: 100})
	require.True(t, s.LeastUsed().IsZero())
	for _, m := range []string{"a", "b", "c"} {
		publish(t, s, key(m), strings.Repeat(m, 10))
	}
	require.False(t, s.LeastUsed().IsZero())
	read(t, s, key("a"))
	publish(t, s, key("d"), strings.Repeat("d", 10))
	require.Equal(t, []string{"a", "c", "d"}, held(t, s, "a", "b", "c", "d"))

	publish(t, s, key("e"), strings.Repeat("e", 85))
	require.Equal(t, []string{"d", "e"}, held(t, s, "a", "b", "c", "d", "e"), "as many bytes as fit")
	require.Len(t, entries(t, dir), 2)

	s = open(t, dir, Limits{Count: 1, Bytes: 100})
	require.Equal(t, []string{"e"}, held(t, s, "d", "e"), "the limits of a restarted program hold too")
}

// held says which machines have a state, without using any.
func held(t *testing.T, s *Store, machines ...string) []string {
	t.Helper()
	found := []string{}
	for _, m := range machines {
		data, err := os.ReadFile(filepath.Join(s.dir, key(m).String(), "about.json"))
		if err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
			continue
		}
		var a About
		require.NoError(t, json.Unmarshal(data, &a))
		require.Equal(t, key(m).String(), a.Key)
		found = append(found, m)
	}
	return found
}
