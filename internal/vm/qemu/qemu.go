// Package qemu runs each machine as a QEMU virtual machine: the backend
// "microvm". It uses KVM where a guest really boots with it, and QEMU's own
// translation (TCG) elsewhere.
package qemu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tidewait/internal/capacity"
	"tidewait/internal/vm"
	"tidewait/internal/vm/host"
	"tidewait/internal/vm/image"
)

// Name is the backend's name in mission documents.
const Name = "microvm"

// Ways of running a guest's instructions.
const (
	AccelAuto = "auto" // KVM when a guest boots with it, otherwise TCG
	AccelKVM  = "kvm"
	AccelTCG  = "tcg"
)

// overhead is the memory of a machine beyond its guest's, in MiB.
func overhead(accel string) int64 {
	if accel == AccelKVM {
		return 32
	}
	return 160
}

// minMemory is the least memory a guest boots with, in MiB.
const minMemory = 96

// bootAttempts is how often a guest is booted on the microvm machine before the
// slower, dependable q35 is tried.
const bootAttempts = 3

// Options configure a Backend. Zero values have defaults.
type Options struct {
	QEMU        string        // program; default: qemu-system-x86_64 on PATH
	Image       image.Image   // what guests boot; required
	RunDir      string        // for this backend alone; required
	Accel       string        // AccelAuto (default), AccelKVM or AccelTCG
	BootTimeout time.Duration // of one attempt; default 20 s
	StepTimeout time.Duration // of Inject and of Collect; default 10 min
	KillGrace   time.Duration // between TERM and the end of the machine; default 10 s
	RunUser     string        // whom QEMU runs as when this program is root; default nobody
	Keeper      string        // the guest agent, as the keeper of machines; default: tidewait-guest beside the running program
	Lease       string        // file that says when machines with a keeper have to end; default: they need not
	// Snapshots is how many snapshots are kept for machines to be restored from,
	// in RunDir; 0: machines are booted.
	Snapshots     int
	SnapshotBytes int64        // most bytes of all snapshots together; default 1 GiB
	Logger        *slog.Logger // default: none
}

func (o Options) withDefaults() (Options, error) {
	if o.Keeper == "" {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("find the keeper of machines: %w", err)
		}
		o.Keeper = filepath.Join(filepath.Dir(self), "tidewait-guest")
	}
	setDefault(&o.QEMU, "qemu-system-x86_64")
	setDefault(&o.Accel, AccelAuto)
	setDefault(&o.BootTimeout, 20*time.Second)
	setDefault(&o.StepTimeout, 10*time.Minute)
	setDefault(&o.KillGrace, 10*time.Second)
	setDefault(&o.RunUser, "nobody")
	setDefault(&o.SnapshotBytes, 1<<30)
	setDefault(&o.Logger, slog.New(slog.DiscardHandler))
	return o, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Backend implements [vm.Backend].
type Backend struct {
	opts Options
	user *host.User // nil: the user of this program
	runs *host.Runs[*machine]

	disks sync.Mutex // held while a template disk is made

	accelMu sync.Mutex // held while KVM is tried
	verdict verdict    // what AccelAuto means; empty until found out

	fast fast
}

var _ vm.Adopter = (*Backend)(nil)

// New returns a Backend, to be closed when it made snapshots. It does not need
// QEMU: Probe says whether guests boot.
func New(o Options) (*Backend, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	switch o.Accel {
	case AccelAuto, AccelKVM, AccelTCG:
	default:
		return nil, fmt.Errorf("the accelerator %q is not known; use %s, %s or %s", o.Accel, AccelAuto, AccelKVM, AccelTCG)
	}
	if o.Image.Kernel == "" || o.Image.Initrd == "" {
		return nil, errors.New("the microvm backend needs a guest image")
	}
	runs, err := host.OpenRuns[*machine](o.RunDir)
	if err != nil {
		return nil, err
	}
	user, err := host.Unprivileged(o.RunUser)
	if err != nil {
		return nil, err
	}
	b := &Backend{opts: o, runs: runs, user: user}
	return b, b.openFast()
}

// Name implements [vm.Backend].
func (b *Backend) Name() string { return Name }

// Create implements [vm.Backend].
func (b *Backend) Create(ctx context.Context, s vm.Spec) (vm.VM, error) {
	if s.MemoryMiB < minMemory {
		return nil, fmt.Errorf("a microVM of %d MiB cannot boot; the least is %d MiB", s.MemoryMiB, minMemory)
	}
	if err := b.checkRoot(s); err != nil {
		return nil, err
	}
	m, err := b.runs.Create(ctx, s.RunID, func(ctx context.Context, run *host.Run) (*machine, error) {
		return b.start(ctx, run, s)
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Adopt implements [vm.Adopter].
func (b *Backend) Adopt(_ context.Context, runID string) (vm.Kept, error) {
	m, err := b.runs.Adopt(runID, func(run *host.Run) (*machine, error) {
		m := b.newMachine(run, "")
		return m, m.Adopt(run)
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Sweep implements [vm.Adopter].
func (b *Backend) Sweep(ctx context.Context) (vm.Leaks, error) { return b.runs.Sweep(ctx) }

// List implements [vm.Backend].
func (b *Backend) List(context.Context) ([]string, error) {
	ids, err := b.runs.List()
	return slices.DeleteFunc(ids, b.fast.uses), err
}

// Destroy implements [vm.Backend].
func (b *Backend) Destroy(ctx context.Context, runID string) error {
	return b.runs.Destroy(ctx, runID)
}

// Probe implements [vm.Backend]: it boots a guest and runs uname -r in it.
func (b *Backend) Probe(ctx context.Context) vm.Report {
	began := time.Now()
	report := vm.Report{Enforced: true}
	m, err := b.probe(ctx)
	report.Took = time.Since(began)
	if err != nil {
		report.Why = err.Error()
		return report
	}
	report.OK, report.Info = true, m.Info()
	report.Overhead = capacity.Resources{MemoryMiB: overhead(m.accel)}
	report.Why = b.weaker(m)
	if err := b.checkNetwork(ctx); err != nil {
		report.Why = strings.TrimPrefix(report.Why+"; "+err.Error(), "; ")
	} else {
		report.Network = true
	}
	return report
}

// checkNetwork asks QEMU whether it can put a machine on a segment.
func (b *Backend) checkNetwork(ctx context.Context) error {
	ways, err := exec.CommandContext(ctx, b.opts.QEMU, "-netdev", "help").Output()
	if err != nil {
		return fmt.Errorf("machines cannot be on a network: ask QEMU what it can: %w", err)
	}
	if !slices.Contains(strings.Fields(string(ways)), "dgram") {
		return errors.New("machines cannot be on a network: QEMU has no -netdev dgram; version 7.2 is the first that does")
	}
	return nil
}

// weaker says what is weaker than a node might expect.
func (b *Backend) weaker(m *machine) string {
	b.accelMu.Lock()
	defer b.accelMu.Unlock()
	why := b.verdict.Why
	if m.Cgroup == nil {
		why = strings.TrimPrefix(why+"; CPU is limited to whole processors: no cgroup can be made", "; ")
	}
	return why
}

func (b *Backend) probe(ctx context.Context) (m *machine, err error) {
	if _, err := exec.LookPath(b.opts.QEMU); err != nil {
		return nil, errMissing(err)
	}
	defer func() {
		err = errors.Join(err, b.Destroy(context.WithoutCancel(ctx), probeRun))
	}()
	spec := vm.Spec{RunID: probeRun, CPUMilli: 1000, MemoryMiB: 128, DiskMiB: minDisk}
	m, err = b.runs.Create(ctx, spec.RunID, func(ctx context.Context, run *host.Run) (*machine, error) {
		accel, err := b.accelerator(ctx)
		if err != nil {
			return nil, err
		}
		return b.boot(ctx, run, spec, accel)
	})
	if err != nil {
		return nil, err
	}
	return m, vm.CheckKernel(ctx, m)
}

const probeRun = "probe"

func errMissing(err error) error {
	return fmt.Errorf("QEMU is missing (%w); install the Debian package qemu-system-x86", err)
}
