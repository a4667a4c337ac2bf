package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
	"tidewait/internal/vm/host"
	"tidewait/internal/vm/qemu/snapshot"
)

// snapshotFormat changes whenever a snapshot made by this code would not do for
// older code, or the other way round.
const snapshotFormat = 3

// fast starts machines from snapshots: it knows which there are, has those made
// that are wanted, one at a time, and counts.
type fast struct {
	off   string // why there are none; empty: there are
	store *snapshot.Store
	host  []string        // of the keys, but for QEMU
	ctx   context.Context // of everything that is made
	stop  context.CancelFunc
	work  sync.WaitGroup
	// patience is how long a restored guest may take to answer. It takes a
	// fraction of what a boot takes; what takes longer is given up for one.
	patience time.Duration

	mu     sync.Mutex
	counts vm.Starts
	known  map[string]*wish // by key
	queue  []*wish
	making bool
}

// shape is a machine without what is a run's own.
type shape struct {
	key   snapshot.Key
	spec  vm.Spec // of the machine whose state is saved
	accel string
}

// wish is the wish for a snapshot of a shape.
type wish struct {
	shape
	latest, previous time.Time     // when it was missed
	failures         int           // since it last did what it is for
	notBefore        time.Time     // of the next try to make it
	lastFailure      string        // to make it
	silences         int           // of machines restored from it, one after another
	made             chan struct{} // closed when the making has ended; nil when none is under way
}

func (b *Backend) openFast() error {
	f := &b.fast
	f.known, f.patience = map[string]*wish{}, b.opts.BootTimeout/2
	f.ctx, f.stop = context.WithCancel(context.Background())
	limits := snapshot.Limits{Count: b.opts.Snapshots, Bytes: b.opts.SnapshotBytes}
	switch {
	case limits.Count <= 0:
		f.off = "snapshots are turned off"
		return nil
	case !slices.Contains(b.opts.Image.RunModules, "virtio_blk"):
		f.off = "the kernel of the guest has the driver of the disk built in, so that a restored machine would not find its own disk"
		return nil
	}
	var err error
	if f.host, err = hostParts(b.opts.Image.Digest); err != nil {
		return err
	}
	host, err := b.hostKey()
	if err != nil {
		f.off = err.Error()
		return nil
	}
	f.store, err = snapshot.Open(filepath.Join(b.runs.Root(), "snapshots"), host, limits)
	return err
}

// hostKey names what the snapshots of all shapes depend on.
func (b *Backend) hostKey() ([]string, error) {
	program, err := programID(b.opts.QEMU)
	if err != nil {
		return nil, errMissing(err)
	}
	return append([]string{"QEMU " + program}, b.fast.host...), nil
}

func hostParts(image string) ([]string, error) {
	processor, err := processorID()
	if err != nil {
		return nil, err
	}
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("format %d", snapshotFormat),
		"guest image " + image,
		"processor " + processor,
		"kernel " + unix.ByteSliceToString(host.Release[:]),
	}, nil
}

// programID tells one build of a program from another without running it.
func programID(name string) (string, error) {
	file, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return fmt.Sprintf("%s inode %d size %d changed %d.%09d", file, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec), nil
}

// processorID is what the kernel says of the first processor, but for what
// changes from one look to the next.
func processorID() (string, error) {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(data), "\n\n")
	var lines []string
	for line := range strings.Lines(first) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags":
			lines = append(lines, strings.TrimSpace(value))
		}
	}
	return strings.Join(lines, "; "), nil
}

// shapeOf is the shape of a run's machine. Its key holds all of QEMU's arguments,
// memory, processors, machine, accelerator, kernel's command line and every device,
// and the size of the disk, which the saved machine has mounted.
func (b *Backend) shapeOf(s vm.Spec, accel string) (shape, error) {
	host, err := b.hostKey()
	if err != nil {
		return shape{}, err
	}
	spec := s
	spec.RunID, spec.DiskMiB, spec.Keep = saveRun, max(s.DiskMiB, minDisk), false
	if s.NIC != nil {
		spec.NIC = &vm.NIC{} // the run's own cable is not for others
	}
	if spec.Image = ""; s.Root != nil {
		spec.Root = &vm.Root{} // nor is its image
	}
	of := append(arguments(s, accel, machineMicroVM), fmt.Sprintf("disk of %d MiB", spec.DiskMiB))
	return shape{key: snapshot.Key{Host: host, Machine: of}, spec: spec, accel: accel}, nil
}

// start starts the machine of a run: from a snapshot, else by booting it. What
// was missing is made in the background.
func (b *Backend) start(ctx context.Context, run *host.Run, s vm.Spec) (*machine, error) {
	accel, err := b.accelerator(ctx)
	if err != nil {
		return nil, err
	}
	f := &b.fast
	if f.off != "" {
		return b.startCold(ctx, run, s, accel, f.off)
	}
	sh, err := b.shapeOf(s, accel)
	if err != nil {
		return b.startCold(ctx, run, s, accel, err.Error())
	}
	m, err := b.startFast(ctx, run, s, sh)
	if err == nil {
		f.restored(sh)
		return m, nil
	}
	if ctx.Err() != nil || vm.IsImageInvalid(err) {
		return nil, err
	}
	why, fellBack := f.missed(sh, err)
	if fellBack {
		b.opts.Logger.Warn("a machine could not be restored from its snapshot and is booted", "run", s.RunID, "error", err)
	}
	m, err = b.startCold(ctx, run, s, accel, why)
	if err == nil {
		b.want(sh)
	}
	return m, err
}

// startFast restores a machine. A snapshot that fails is not used again, but for
// one whose machine was silent for the first time.
func (b *Backend) startFast(ctx context.Context, run *host.Run, s vm.Spec, sh shape) (*machine, error) {
	saved, err := b.fast.store.Open(sh.key)
	if err != nil {
		return nil, err
	}
	defer saved.Close()
	m, err := b.restoreOnce(ctx, run, s, sh.accel, saved, b.fast.patience)
	if err != nil && ctx.Err() == nil && !vm.IsImageInvalid(err) && !b.fast.forgives(sh, err) {
		err = errors.Join(err, b.fast.store.Drop(sh.key))
	}
	return m, err
}

func (b *Backend) startCold(ctx context.Context, run *host.Run, s vm.Spec, accel, why string) (*machine, error) {
	m, err := b.boot(ctx, run, s, accel)
	if err != nil {
		return nil, err
	}
	m.start = vm.Start{Kind: vm.StartCold, Why: why}
	b.fast.booted()
	return m, nil
}

func (f *fast) restored(sh shape) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Snapshot++
	if w, ok := f.known[sh.key.String()]; ok {
		w.failures, w.silences = 0, 0
	}
}

// forgives reports whether a snapshot is kept although a machine could not be
// restored from it.
func (f *fast) forgives(sh shape, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.wish(sh)
	if silent := new(silentError); errors.As(err, &silent) && w.silences == 0 {
		w.silences++
		return true
	}
	w.silences = 0
	return false
}

func (f *fast) booted() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Cold++
}

// missed records that a run could not be restored, and says why in a sentence.
// It counts when there was a snapshot, whether the machine can be booted or not.
func (f *fast) missed(sh shape, err error) (why string, fellBack bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.wish(sh)
	w.previous, w.latest = w.latest, time.Now()
	if errors.Is(err, snapshot.ErrNone) {
		if w.lastFailure != "" {
			return w.lastFailure, false
		}
		return err.Error(), false
	}
	if !f.store.Has(sh.key) {
		w.failed(w.failures)
	}
	f.counts.FellBack++
	f.counts.Why = "the snapshot failed, and the machine was booted: " + err.Error()
	return f.counts.Why, true
}

func (f *fast) wish(sh shape) *wish {
	key := sh.key.String()
	w, ok := f.known[key]
	if !ok {
		w = &wish{shape: sh}
		f.known[key] = w
	}
	return w
}

const (
	firstPause = 30 * time.Second
	lastPause  = time.Hour
)

// failed counts a failure, and lets the next try wait: not at all for no step, and
// twice as long with each.
func (w *wish) failed(step int) {
	w.failures++
	pause := time.Duration(0)
	if step > 0 {
		pause = min(firstPause<<min(step-1, 10), lastPause)
	}
	w.notBefore = time.Now().Add(pause)
}

// want has the snapshot of a shape made, unless it failed shortly before, or
// would take the place of one that is used more.
func (b *Backend) want(sh shape) {
	f := &b.fast
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.wish(sh)
	if f.store.Has(sh.key) {
		return
	}
	if !time.Now().Before(w.notBefore) && !w.previous.Before(f.store.LeastUsed()) {
		b.enqueue(w)
	}
}

// enqueue has a wish fulfilled in the background. It is called with f.mu held.
func (b *Backend) enqueue(w *wish) {
	f := &b.fast
	if w.made != nil || f.ctx.Err() != nil {
		return
	}
	w.made = make(chan struct{})
	f.queue = append(f.queue, w)
	if !f.making {
		f.making = true
		f.work.Go(b.makeWanted)
	}
}

// makeWanted makes what is queued, one after another.
func (b *Backend) makeWanted() {
	f := &b.fast
	for w := f.next(); w != nil; w = f.next() {
		began := time.Now()
		err := b.makeSnapshot(f.ctx, w.shape)
		f.ended(w, err)
		if err != nil && f.ctx.Err() == nil {
			b.opts.Logger.Warn("machines are booted, because no snapshot could be made of one", "error", err)
		} else if err == nil {
			b.opts.Logger.Info("a snapshot was made", "key", w.key.String()[:12], "memory_mib", w.spec.MemoryMiB,
				"cpus", cpus(w.spec), "took", time.Since(began).Round(time.Millisecond))
		}
	}
}

func (f *fast) next() *wish {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		f.making = false
		return nil
	}
	w := f.queue[0]
	f.queue = f.queue[1:]
	return w
}

func (f *fast) ended(w *wish, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(w.made)
	w.made, w.lastFailure = nil, ""
	if err != nil {
		w.failed(w.failures + 1)
		w.lastFailure = err.Error()
		if f.counts.FellBack == 0 {
			f.counts.Why = err.Error()
		}
	}
}

// Snapshot makes the snapshot of a machine like s now, if there is none. Nobody
// needs to call it: what is missed is made in the background.
func (b *Backend) Snapshot(ctx context.Context, s vm.Spec) error {
	if b.fast.off != "" {
		return errors.New(b.fast.off)
	}
	accel, err := b.accelerator(ctx)
	if err != nil {
		return err
	}
	sh, err := b.shapeOf(s, accel)
	if err != nil {
		return err
	}
	if saved, err := b.fast.store.Open(sh.key); err == nil {
		return saved.Close()
	}
	w, made := b.order(sh)
	if made == nil {
		return errors.New("the backend was closed")
	}
	select {
	case <-made:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.fast.mu.Lock()
	defer b.fast.mu.Unlock()
	if w.lastFailure != "" {
		return errors.New(w.lastFailure)
	}
	return nil
}

// order has the snapshot of a shape made whatever happened before.
func (b *Backend) order(sh shape) (*wish, <-chan struct{}) {
	b.fast.mu.Lock()
	defer b.fast.mu.Unlock()
	w := b.fast.wish(sh)
	b.enqueue(w)
	return w, w.made
}

// uses reports whether a run is that of a snapshot being made.
func (f *fast) uses(runID string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.making && (runID == saveRun || runID == trialRun)
}

// Starts implements [vm.Backend].
func (b *Backend) Starts() vm.Starts {
	f := &b.fast
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := f.counts
	if f.off != "" {
		counts.Why = f.off
	} else {
		n, bytes := f.store.Kept()
		counts.Snapshots, counts.Bytes = int64(n), bytes
	}
	return counts
}

// Close ends the making of snapshots and waits for it. Machines are left as they
// are.
func (b *Backend) Close() error {
	b.fast.mu.Lock()
	b.fast.stop()
	b.fast.mu.Unlock()
	b.fast.work.Wait()
	if b.fast.store != nil {
		b.fast.store.Close()
	}
	return nil
}
