package qemu

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"tidewait/internal/vm"
	"tidewait/internal/vm/host"
	"tidewait/internal/vm/qemu/snapshot"
	"tidewait/internal/vm/segment"
)

// Runs of the backend's own, for which no start is counted.
const (
	saveRun  = "snapshot"
	trialRun = "snapshot-trial"
)

// restoreOnce starts QEMU with a state, and a copy of the disk that belongs to it, in
// place of a boot, and gives the guest its run. When it fails nothing is left.
func (b *Backend) restoreOnce(ctx context.Context, run *host.Run, s vm.Spec, accel string, saved *snapshot.Saved, timeout time.Duration) (*machine, error) {
	m := b.newMachine(run, accel)
	m.start.Kind = vm.StartSnapshot
	return m, m.orGone(ctx, m.restore(ctx, b, s, saved, timeout))
}

// silentError says that a restored machine lived and did not answer, which may
// be the fault of a busy host.
type silentError struct{ error }

func (e *silentError) Unwrap() error { return e.error }

func (m *machine) restore(ctx context.Context, b *Backend, s vm.Spec, saved *snapshot.Saved, timeout time.Duration) error {
	disk, err := b.copyDisk(m.run.Dir, saved.Disk)
	if err != nil {
		return err
	}
	defer disk.Close()
	args := append(withMemory(arguments(s, m.accel, machineMicroVM), s, memoryIsPrivate), "-incoming", "defer")
	conn, monitor, err := m.launchMonitored(b, s, args, disk, saved.Memory, saved.State)
	if err != nil {
		return err
	}
	defer monitor.Close()
	err = m.Resume(ctx, conn, s, timeout, func(ctx context.Context) error { return readState(ctx, monitor) })
	if err == nil {
		return nil
	}
	select {
	case <-m.Process.Done():
		return err
	default:
		return &silentError{err}
	}
}

// The descriptors of machines that are saved or restored, beside the usual ones.
const (
	fdMonitor = fdMore + iota
	fdMemory
	fdState // of one that is restored
)

// How QEMU maps the file that is its machine's memory.
const (
	memoryIsShared  = "on"  // the file has what the machine has
	memoryIsPrivate = "off" // what the machine writes is its own
)

// withMemory has a file as the machine's memory.
func withMemory(args []string, s vm.Spec, share string) []string {
	args = slices.Clone(args)
	args[slices.Index(args, "-machine")+1] += ",memory-backend=memory"
	return append(args, "-object", fmt.Sprintf("memory-backend-file,id=memory,size=%dM,mem-path=%s,share=%s", s.MemoryMiB, fdPath(fdMemory), share))
}

// ignoreMemory leaves memory that is a file out of what is written or read.
var ignoreMemory = map[string]any{"capability": "x-ignore-shared", "state": true}

// launchMonitored is launch with a connection to QEMU's monitor, and the memory of the
// machine among the files.
func (m *machine) launchMonitored(b *Backend, s vm.Spec, args []string, disk *os.File, more ...*os.File) (conn net.Conn, monitor *net.UnixConn, err error) {
	ours, theirs, err := host.SocketPair()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	args = append(args, "-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", fdMonitor), "-mon", "chardev=monitor,mode=control")
	conn, err = m.launch(b, s, args, disk, append([]*os.File{theirs}, more...)...)
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	return conn, ours.(*net.UnixConn), nil
}

// readState has QEMU read the state of a machine, which goes on when it is read.
func readState(ctx context.Context, conn *net.UnixConn) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	monitor, err := openMonitor(conn)
	if err != nil {
		return err
	}
	if err := monitor.do("migrate-set-capabilities", map[string]any{"capabilities": []any{ignoreMemory}}, nil); err != nil {
		return err
	}
	return monitor.do("migrate-incoming", map[string]any{"uri": fmt.Sprintf("fd:%d", fdState)}, nil)
}

// within bounds the writing of a state, and a trial.
func (b *Backend) within(ctx context.Context) (context.Context, context.CancelFunc) {
	most := 3 * b.opts.BootTimeout
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("it took longer than %s", most))
}

// makeSnapshot boots a machine, writes its state, and keeps it when a job works
// in a machine that is restored from it.
func (b *Backend) makeSnapshot(ctx context.Context, sh shape) error {
	if sh.spec.NIC != nil {
		network, err := segment.Alone(saveRun)
		if err != nil {
			return fmt.Errorf("no snapshot could be made: %w", err)
		}
		defer network.Close()
		sh.spec.NIC = network.NIC(0)
	}
	draft, err := b.save(ctx, sh)
	if err != nil {
		return fmt.Errorf("no snapshot could be made: %w", err)
	}
	if err := b.trial(ctx, sh, draft); err != nil {
		draft.Discard()
		return fmt.Errorf("a snapshot was made, but its trial failed: %w", err)
	}
	return draft.Publish()
}

// save boots a machine that never becomes that of a run, so that nobody's data
// are in it, and keeps its state and its disk.
func (b *Backend) save(ctx context.Context, sh shape) (draft *snapshot.Draft, err error) {
	if err := enoughMemory(sh); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, b.Destroy(context.WithoutCancel(ctx), saveRun))
		if err != nil && draft != nil {
			draft.Discard()
		}
	}()
	for range bootAttempts {
		_, err = b.runs.Create(ctx, saveRun, func(ctx context.Context, run *host.Run) (*machine, error) {
			m := b.newMachine(run, sh.accel)
			var err error
			draft, err = m.save(ctx, b, sh)
			return m, m.orGone(ctx, err)
		})
		if f := new(vm.Failure); err == nil || ctx.Err() != nil || !errors.As(err, &f) {
			break
		}
	}
	return draft, err
}

// enoughMemory refuses to boot a machine that nobody reserved memory for when
// the runs of the node may need what is free.
func enoughMemory(sh shape) error {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(data), "MemAvailable:")
	var kib int64
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		return fmt.Errorf("read the free memory of the node: %w", err)
	}
	if need := sh.spec.MemoryMiB + overhead(sh.accel); kib>>10 < need {
		return fmt.Errorf("the node has %d MiB of memory free, and %d MiB are needed", kib>>10, need)
	}
	return nil
}

func (m *machine) save(ctx context.Context, b *Backend, sh shape) (*snapshot.Draft, error) {
	disk, err := b.newDisk(ctx, m.run.Dir, sh.spec.DiskMiB)
	if err != nil {
		return nil, err
	}
	defer disk.Close()
	memory, err := snapshot.NewMemory(sh.spec.MemoryMiB << 20)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	// The machine is stopped when it is saved, and has to go on when it is restored:
	// whether it ran is not to be told.
	args := append(withMemory(arguments(sh.spec, m.accel, machineMicroVM), sh.spec, memoryIsShared), "-global", "migration.store-global-state=off")
	conn, monitor, err := m.launchMonitored(b, sh.spec, args, disk, memory)
	if err != nil {
		return nil, err
	}
	defer monitor.Close()
	if err := m.Hear(ctx, conn, b.opts.BootTimeout); err != nil {
		return nil, err
	}
	draft, err := b.fast.store.Draft(sh.key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := b.within(ctx)
	defer cancel()
	if err = m.writeState(ctx, monitor, draft); err == nil {
		err = errors.Join(draft.KeepMemory(memory), draft.KeepDisk(disk)) // nobody writes any more
	}
	if err != nil {
		draft.Discard()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("save the state of a machine: %w%s", err, m.said())
	}
	return draft, nil
}

// writeState stops the machine and writes its state through a pipe, so that QEMU
// never holds the file that others are restored from.
func (m *machine) writeState(ctx context.Context, conn *net.UnixConn, to io.Writer) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	monitor, err := openMonitor(conn)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		command   string
		arguments map[string]any
	}{
		{"stop", nil},
		{"migrate-set-parameters", map[string]any{"max-bandwidth": 1 << 40}},
		{"migrate-set-capabilities", map[string]any{"capabilities": []any{map[string]any{"capability": "events", "state": true}, ignoreMemory}}},
	} {
		if err := monitor.do(c.command, c.arguments, nil); err != nil {
			return err
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = monitor.do("getfd", map[string]any{"fdname": "state"}, w)
	w.Close() // so that the end of QEMU's writing is the end of the pipe
	if err != nil {
		return err
	}
	if err := monitor.do("migrate", map[string]any{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { r.Close() })()
	if _, err := io.CopyBuffer(onlyWriter{to}, r, make([]byte, 1<<20)); err != nil {
		return err
	}
	status, err := monitor.await("MIGRATION", "completed", "failed")
	if err == nil && status == "failed" {
		err = errors.New("QEMU could not write it")
	}
	return err
}

// onlyWriter hides what else a writer can do.
type onlyWriter struct{ io.Writer }

// trial runs a whole job in a machine that is restored from a draft.
func (b *Backend) trial(ctx context.Context, sh shape, draft *snapshot.Draft) (err error) {
	ctx, cancel := b.within(ctx)
	defer cancel()
	saved, err := draft.Open()
	if err != nil {
		return err
	}
	defer saved.Close()
	spec := sh.spec
	spec.RunID = trialRun
	defer func() {
		err = errors.Join(err, b.Destroy(context.WithoutCancel(ctx), trialRun))
	}()
	m, err := b.runs.Create(ctx, trialRun, func(ctx context.Context, run *host.Run) (*machine, error) {
		return b.restoreOnce(ctx, run, spec, sh.accel, saved, b.opts.BootTimeout)
	})
	if err != nil {
		return err
	}
	return tryJob(ctx, m)
}

// tryJob puts a file into a machine, copies it there, and gets the copy back.
func tryJob(ctx context.Context, m vm.VM) error {
	const content = "what comes in must come out"
	var in bytes.Buffer
	tw := tar.NewWriter(&in)
	_ = tw.WriteHeader(&tar.Header{Name: "in", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))})
	_, _ = io.WriteString(tw, content) // a buffer takes everything
	_ = tw.Close()
	if _, err := m.Inject(ctx, &in); err != nil {
		return err
	}
	if err := vm.CheckKernel(ctx, m); err != nil {
		return err
	}
	exit, err := m.Run(ctx, vm.Command{Argv: []string{"cp", "in", "out"}}, func(string, []byte) {})
	if err != nil || exit != (vm.Exit{}) {
		return errors.Join(err, fmt.Errorf("cp ended with %+v", exit))
	}
	var out bytes.Buffer
	if _, err := m.Collect(ctx, nil, vm.Limits{Files: 2, Bytes: 1 << 10}, &out); err != nil {
		return err
	}
	if !strings.Contains(out.String(), content) {
		return errors.New("what came out is not what went in")
	}
	return nil
}
