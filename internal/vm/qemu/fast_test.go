package qemu

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/qemu/snapshot"
)

// newFast makes a backend that keeps snapshots.
func newFast(t *testing.T, o Options) *Backend {
	t.Helper()
	if o.RunDir == "" {
		o.RunDir = t.TempDir()
	}
	if o.Image.Kernel == "" {
		o.Image = builtImage(t)
	}
	o.Accel, o.Snapshots = AccelTCG, max(o.Snapshots, 2)
	o.BootTimeout = patient
	b, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.Close())
		left, err := os.ReadDir(filepath.Join(o.RunDir, "runs"))
		require.NoError(t, err)
		require.Empty(t, left)
	})
	return b
}

// patient is a time to start that a busy machine keeps, too.
const patient = 2 * time.Minute

// create makes a machine that is destroyed with the test.
func create(t *testing.T, b *Backend, s vm.Spec) vm.VM {
	t.Helper()
	m, err := b.Create(t.Context(), s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Destroy(context.Background(), s.RunID)) })
	return m
}

// startOnce makes a machine, destroys it, and returns how it was started.
func startOnce(t *testing.T, b *Backend, s vm.Spec) vm.Start {
	t.Helper()
	m, err := b.Create(t.Context(), s)
	require.NoError(t, err)
	require.NoError(t, vm.CheckKernel(t.Context(), m))
	require.NoError(t, b.Destroy(t.Context(), s.RunID))
	return m.Info().Start
}

// settled waits until every snapshot that is wanted has been tried.
func settled(t *testing.T, b *Backend) {
	t.Helper()
	require.Eventually(t, func() bool {
		b.fast.mu.Lock()
		defer b.fast.mu.Unlock()
		return !b.fast.making
	}, 3*time.Minute, 5*time.Millisecond)
}

// lines runs a script and returns what it prints.
func lines(t *testing.T, m vm.VM, script string) []string {
	t.Helper()
	var out []string
	exit, err := m.Run(t.Context(), vm.Command{Argv: []string{"sh", "-c", script}}, func(_ string, line []byte) {
		out = append(out, string(line))
	})
	require.NoError(t, err)
	require.Equal(t, vm.Exit{}, exit, "%q", out)
	return out
}

const missing = "there is no snapshot of such a machine yet"

// TestFirstJobIsCold makes a snapshot after the first job of its kind.
func TestFirstJobIsCold(t *testing.T) {
	b := newFast(t, Options{})
	require.Equal(t, vm.Start{Kind: vm.StartCold, Why: missing}, startOnce(t, b, spec))
	settled(t, b)
	require.Equal(t, vm.Start{Kind: vm.StartSnapshot}, startOnce(t, b, spec))
	starts := b.Starts()
	require.Greater(t, starts.Bytes, int64(20<<20))
	require.Less(t, starts.Bytes, int64(200<<20))
	starts.Bytes = 0
	require.Equal(t, vm.Starts{Snapshot: 1, Cold: 1, Snapshots: 1}, starts)

	t.Run("its memory is kept as it was", func(t *testing.T) { // so that whoever looks for a secret in it would find one
		kept, err := filepath.Glob(filepath.Join(b.opts.RunDir, "snapshots", "*", "memory"))
		require.NoError(t, err)
		require.Len(t, kept, 1)
		memory, err := os.ReadFile(kept[0])
		require.NoError(t, err)
		require.True(t, bytes.Contains(memory, []byte("random.trust_cpu=on")), "the kernel's arguments")
	})
	t.Run("a program that starts later uses it", func(t *testing.T) {
		later := newFast(t, Options{RunDir: b.opts.RunDir})
		require.Equal(t, vm.Start{Kind: vm.StartSnapshot}, startOnce(t, later, spec))
	})
	t.Run("the probe boots", func(t *testing.T) {
		before := b.Starts()
		report := b.Probe(t.Context())
		require.True(t, report.OK, report.Why)
		require.Equal(t, vm.StartKind(""), report.Info.Start.Kind)
		require.Equal(t, before, b.Starts())
	})
}

// TestMachinesOfOneSnapshotDiffer restores two machines from one snapshot and
// compares all that must be their own.
func TestMachinesOfOneSnapshotDiffer(t *testing.T) {
	b := newFast(t, Options{})
	require.NoError(t, b.Snapshot(t.Context(), spec))
	saved, err := b.fast.store.Open(mustShape(t, b, spec).key)
	require.NoError(t, err)
	defer saved.Close()
	made, err := saved.State.Stat()
	require.NoError(t, err)
	require.Eventually(t, func() bool { return time.Since(made.ModTime()) > 3*time.Second }, time.Minute, 10*time.Millisecond,
		"a clock that stands still must be seen to")
	before := searchable(t, saved)
	require.False(t, bytes.Contains(before, []byte("tide-secret-7d1c")))

	one, two := spec, spec
	one.RunID, two.RunID = "one", "two"
	machines := []*machine{create(t, b, one).(*machine), create(t, b, two).(*machine)}
	var random [2][]string
	for i, m := range machines {
		require.Equal(t, vm.Start{Kind: vm.StartSnapshot}, m.Info().Start)
		// The first that is asked of each is what would be the same.
		random[i] = lines(t, m, `head -c 64 /dev/urandom | od -An -tx1 -v
			cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id`)
		random[i] = append(random[i], m.Session.BootID())
		require.Equal(t, []string{"32768", "/dev/vda"}, lines(t, m, `cat /sys/block/vda/size; df /workspace | awk 'NR == 2 { print $1 }'`))

		sent := time.Now()
		said := clock(t, m)
		require.WithinRange(t, said, sent.Add(-clockError), time.Now().Add(clockError))
		lines(t, m, fmt.Sprintf(`test ! -e mine && echo tide-secret-7d1c-%d >mine && sync`, i))
	}
	require.Len(t, random[0], 7)
	require.NotContains(t, random[0], "")
	for i := range random[0] {
		require.NotEqual(t, random[0][i], random[1][i], "line %d", i)
	}
	for _, r := range random {
		require.Equal(t, r[5], r[6], "the guest tells its own boot id")
	}
	require.True(t, bytes.Equal(before, searchable(t, saved)), "nothing of a run comes into a snapshot")
}

// clockError is how wrong a guest's clock may be soon after its start.
const clockError = 300 * time.Millisecond

// clock is the time a guest has.
func clock(t *testing.T, m vm.VM) time.Time {
	t.Helper()
	var fields [2]int64
	for i, line := range lines(t, m, `adjtimex | sed -n 's/.*time.tv_u\?sec: *//p'`) {
		n, err := strconv.ParseInt(line, 10, 64)
		require.NoError(t, err)
		fields[i] = n
	}
	return time.Unix(fields[0], fields[1]*1000)
}

// TestClockKeepsTime compares how far a guest's clock goes with the host's, in a
// machine that was booted and in one that was restored.
func TestClockKeepsTime(t *testing.T) {
	b := newFast(t, Options{})
	for _, kind := range []vm.StartKind{vm.StartCold, vm.StartSnapshot} {
		s := spec
		s.RunID = string(kind)
		m := create(t, b, s)
		require.Equal(t, kind, m.Info().Start.Kind)
		settled(t, b)
		before := time.Now()
		first := clock(t, m)
		after := time.Now()
		lines(t, m, `sleep 5`)
		beforeLast := time.Now()
		last := clock(t, m)
		longest, shortest := time.Since(before).Seconds(), beforeLast.Sub(after).Seconds()
		require.Greater(t, last.Sub(first).Seconds(), 0.98*shortest)
		require.Less(t, last.Sub(first).Seconds(), 1.02*longest)
	}
}

func mustShape(t *testing.T, b *Backend, s vm.Spec) shape {
	t.Helper()
	sh, err := b.shapeOf(s, AccelTCG)
	require.NoError(t, err)
	return sh
}

// searchable is the content of all files of a snapshot.
func searchable(t *testing.T, s *snapshot.Saved) []byte {
	t.Helper()
	var content []byte
	for _, f := range []*os.File{s.State, s.Memory, s.Disk} {
		part, err := os.ReadFile(fdPath(int(f.Fd())))
		require.NoError(t, err)
		content = append(content, part...)
	}
	return content
}

// TestBrokenSnapshot breaks a snapshot in every way. The job is done by a machine
// that is booted, the failure is counted and said, and a new snapshot is made.
func TestBrokenSnapshot(t *testing.T) {
	b := newFast(t, Options{})
	require.NoError(t, b.Snapshot(t.Context(), spec))
	key := mustShape(t, b, spec).key
	state := filepath.Join(b.opts.RunDir, "snapshots", key.String(), "state")
	for i, c := range []struct {
		name     string
		breakIt  func(t *testing.T)
		fellBack bool
		why      string
	}{
		{"truncated", func(t *testing.T) { require.NoError(t, os.Truncate(state, 1<<10)) }, true, "the snapshot was damaged: its state has 1024 bytes"},
		{"one byte changed", func(t *testing.T) {
			f, err := os.OpenFile(state, os.O_RDWR, 0)
			require.NoError(t, err)
			defer f.Close()
			var b [1]byte
			_, err = f.ReadAt(b[:], 10<<10)
			require.NoError(t, err)
			b[0] ^= 1
			_, err = f.WriteAt(b[:], 10<<10)
			require.NoError(t, err)
		}, true, "the snapshot was damaged: the digest of its state is"},
		{"whole, but not QEMU's", func(t *testing.T) { plant(t, b, key, []byte("no state of QEMU's")) }, true, "QEMU said: "},
		{"whole, but of less memory", func(t *testing.T) { plant(t, b, key, stateOf(t, b, 128)) }, true, "QEMU said: "},
		{"whole, but ends early", func(t *testing.T) {
			content, err := os.ReadFile(state)
			require.NoError(t, err)
			plant(t, b, key, content[:len(content)/2])
		}, true, "QEMU said: "},
		{"removed", func(t *testing.T) { require.NoError(t, b.fast.store.Drop(key)) }, false, missing},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := b.Starts()
			c.breakIt(t)
			start := startOnce(t, b, spec)
			require.Equal(t, vm.StartCold, start.Kind)
			require.Contains(t, start.Why, c.why)
			after := b.Starts()
			require.Equal(t, before.Cold+1, after.Cold)
			if c.fellBack {
				require.Equal(t, before.FellBack+1, after.FellBack)
				require.Equal(t, start.Why, after.Why)
			} else {
				require.Equal(t, before.FellBack, after.FellBack)
			}
			settled(t, b)
			require.Equal(t, vm.Start{Kind: vm.StartSnapshot}, startOnce(t, b, spec), "case %d must leave a new snapshot", i)
		})
	}
}

// TestSilentMachine gives restored machines no time to answer. The first time may
// be a busy host's fault; the second is the snapshot's.
func TestSilentMachine(t *testing.T) {
	b := newFast(t, Options{})
	require.NoError(t, b.Snapshot(t.Context(), spec))
	usual := b.fast.patience
	for i, kept := range []bool{true, false} {
		b.fast.patience = time.Millisecond
		start := startOnce(t, b, spec)
		require.Equal(t, vm.StartCold, start.Kind)
		require.Contains(t, start.Why, "it did not answer within 1ms")
		require.Equal(t, int64(i+1), b.Starts().FellBack)
		if kept {
			require.Equal(t, int64(1), b.Starts().Snapshots)
			b.fast.mu.Lock()
			require.False(t, b.fast.making)
			b.fast.mu.Unlock()
		}
	}
	settled(t, b)
	b.fast.patience = usual
	require.Equal(t, vm.Start{Kind: vm.StartSnapshot}, startOnce(t, b, spec))
	b.fast.patience = time.Millisecond
	require.Equal(t, vm.StartCold, startOnce(t, b, spec).Kind)
	b.fast.patience = usual
	require.Equal(t, vm.Start{Kind: vm.StartSnapshot}, startOnce(t, b, spec), "a success in between is a new beginning")
}

// plant puts another state under a key.
func plant(t *testing.T, b *Backend, key snapshot.Key, content []byte) {
	t.Helper()
	f, err := b.fast.store.Open(key)
	require.NoError(t, err)
	defer f.Close()
	draft, err := b.fast.store.Draft(key)
	require.NoError(t, err)
	_, err = draft.Write(content)
	require.NoError(t, err)
	require.NoError(t, draft.KeepMemory(f.Memory))
	require.NoError(t, draft.KeepDisk(f.Disk))
	require.NoError(t, draft.Publish())
}

// stateOf is the state of a machine with other memory.
func stateOf(t *testing.T, b *Backend, memory int64) []byte {
	t.Helper()
	other := spec
	other.MemoryMiB = memory
	require.NoError(t, b.Snapshot(t.Context(), other))
	f, err := b.fast.store.Open(mustShape(t, b, other).key)
	require.NoError(t, err)
	defer f.Close()
	content, err := io.ReadAll(f.State)
	require.NoError(t, err)
	return content
}

// TestKey changes one thing after the other that a state depends on.
func TestKey(t *testing.T) {
	img := builtImage(t)
	b := newFast(t, Options{Image: img})
	base := mustShape(t, b, spec).key.String()

	same := spec
	same.RunID, same.CPUMilli = "another", 250
	require.Equal(t, base, mustShape(t, b, same).key.String(), "what is a run's own is not in it")

	qemu, err := exec.LookPath("qemu-system-x86_64")
	require.NoError(t, err)
	program, err := os.ReadFile(qemu)
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), "qemu-system-x86_64")
	require.NoError(t, os.WriteFile(copied, program, 0o755))
	other := img
	other.Digest = "of another kernel or agent"

	keys := map[string]string{"base": base}
	add := func(name, key string) {
		for n, k := range keys {
			require.NotEqual(t, k, key, "%s and %s", n, name)
		}
		keys[name] = key
	}
	more := spec
	more.MemoryMiB++
	add("memory", mustShape(t, b, more).key.String())
	more = spec
	more.DiskMiB = minDisk + 1
	add("disk", mustShape(t, b, more).key.String())
	more = spec
	more.CPUMilli = 1001
	add("processors", mustShape(t, b, more).key.String())
	kvm, err := b.shapeOf(spec, AccelKVM)
	require.NoError(t, err)
	add("accelerator", kvm.key.String())
	add("image", mustShape(t, newFast(t, Options{Image: other}), spec).key.String())
	changed := newFast(t, Options{Image: img, QEMU: copied})
	add("QEMU", mustShape(t, changed, spec).key.String())
	require.NoError(t, os.WriteFile(copied+".new", program, 0o755))
	require.NoError(t, os.Rename(copied+".new", copied))
	add("QEMU, replaced under its name", mustShape(t, changed, spec).key.String())

	// The parts that cannot be changed here are in it in words.
	key := mustShape(t, b, spec).key
	require.Equal(t, append(arguments(spec, AccelTCG, machineMicroVM), "disk of 16 MiB"), key.Machine)
	device := key
	device.Machine = append(device.Machine[:len(device.Machine):len(device.Machine)], "-device", "virtio-net-device")
	add("a device more", device.String())
	require.Len(t, key.Host, 5)
	model, err := os.ReadFile("/proc/cpuinfo")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(model), "model name\t: ")
	require.True(t, found)
	name, _, _ := strings.Cut(after, "\n")
	require.Contains(t, key.Host[3], name)
	release, err := exec.Command("uname", "-r").Output()
	require.NoError(t, err)
	require.Equal(t, "kernel "+strings.TrimSpace(string(release)), key.Host[4])
}

// TestStaleSnapshots starts with another image: the older snapshots go.
func TestStaleSnapshots(t *testing.T) {
	b := newFast(t, Options{})
	require.NoError(t, b.Snapshot(t.Context(), spec))
	require.Equal(t, int64(1), b.Starts().Snapshots)
	img := b.opts.Image
	img.Digest = "of another image"
	later := newFast(t, Options{RunDir: b.opts.RunDir, Image: img})
	require.Equal(t, int64(0), later.Starts().Snapshots)
	left, err := os.ReadDir(filepath.Join(b.opts.RunDir, "snapshots"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestNoSnapshots says why there are none.
func TestNoSnapshots(t *testing.T) {
	img := builtImage(t)
	img.RunModules = nil
	b := newFast(t, Options{Image: img})
	const builtIn = "the kernel of the guest has the driver of the disk built in, so that a restored machine would not find its own disk"
	require.Equal(t, vm.Starts{Why: builtIn}, b.Starts())
	require.EqualError(t, b.Snapshot(t.Context(), spec), builtIn)

	plain := newBackend(t, Options{Image: builtImage(t), Accel: AccelTCG})
	require.Equal(t, vm.Start{Kind: vm.StartCold, Why: "snapshots are turned off"}, startOnce(t, plain, spec))
	require.Equal(t, vm.Starts{Cold: 1, Why: "snapshots are turned off"}, plain.Starts())
}

// TestSnapshotThatCannotBeMade gives snapshots too little room. Jobs go on, the
// reason is said, and it is not tried again with every job.
func TestSnapshotThatCannotBeMade(t *testing.T) {
	b := newFast(t, Options{SnapshotBytes: 1 << 20})
	require.Equal(t, vm.Start{Kind: vm.StartCold, Why: missing}, startOnce(t, b, spec))
	settled(t, b)
	start := startOnce(t, b, spec)
	require.Equal(t, vm.StartCold, start.Kind)
	require.Contains(t, start.Why, "no snapshot could be made: save the state of a machine: the snapshot is larger than the 1048576 bytes")
	require.Equal(t, vm.Starts{Cold: 2, Why: start.Why}, b.Starts())

	b.fast.mu.Lock()
	defer b.fast.mu.Unlock()
	require.False(t, b.fast.making, "it must not be tried again at once")
	w := b.fast.known[mustShape(t, b, spec).key.String()]
	require.WithinRange(t, w.notBefore, time.Now(), time.Now().Add(2*firstPause))
}

// TestRarelyUsedShapes keeps what is used: a shape that is seen once does not
// take the place of another.
func TestRarelyUsedShapes(t *testing.T) {
	b := newFast(t, Options{Snapshots: 2})
	sized := func(memory int64) vm.Spec {
		s := spec
		s.MemoryMiB = memory
		return s
	}
	require.NoError(t, b.Snapshot(t.Context(), sized(128)))
	require.NoError(t, b.Snapshot(t.Context(), sized(129)))
	for i, want := range []vm.StartKind{vm.StartCold, vm.StartCold, vm.StartSnapshot} {
		require.Equal(t, want, startOnce(t, b, sized(130)).Kind, "start %d", i+1)
		settled(t, b)
	}
	require.Equal(t, int64(2), b.Starts().Snapshots)
	require.Equal(t, vm.StartSnapshot, startOnce(t, b, sized(129)).Kind, "the one used longest ago went")
}

// TestPauses doubles the pause between tries.
func TestPauses(t *testing.T) {
	var w wish
	var got []time.Duration
	for range 9 {
		began := time.Now()
		w.failed(w.failures)
		got = append(got, w.notBefore.Sub(began).Round(time.Second))
	}
	require.Equal(t, []time.Duration{
		0, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour,
	}, got)
}

// TestClosedWhileMaking closes a backend that boots a machine for a snapshot.
func TestClosedWhileMaking(t *testing.T) {
	b := newFast(t, Options{})
	require.Equal(t, vm.StartCold, startOnce(t, b, spec).Kind)
	require.NoError(t, b.Close())
	require.Equal(t, int64(0), b.Starts().Snapshots)
	left, err := os.ReadDir(filepath.Join(b.opts.RunDir, "snapshots"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.EqualError(t, b.Snapshot(t.Context(), spec), "the backend was closed")
	require.Equal(t, vm.StartCold, startOnce(t, b, spec).Kind, "machines can still be made")
}

// TestManyAtOnce restores several machines at the same time.
func TestManyAtOnce(t *testing.T) {
	b := newFast(t, Options{})
	require.NoError(t, b.Snapshot(t.Context(), spec))
	errs := make(chan error)
	for i := range 6 {
		go func() {
			s := spec
			s.RunID = fmt.Sprintf("run-%d", i)
			m, err := b.Create(t.Context(), s)
			if err == nil {
				err = tryJob(t.Context(), m)
			}
			if err == nil {
				err = b.Destroy(t.Context(), s.RunID)
			}
			errs <- err
		}()
	}
	for range 6 {
		require.NoError(t, <-errs)
	}
	starts := b.Starts()
	require.Equal(t, int64(6), starts.Snapshot)
	require.Equal(t, int64(0), starts.Cold)
}
