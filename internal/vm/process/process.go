// Package process runs each machine as Linux namespaces around ordinary
// processes: the backend "process". It is fast and needs no virtualisation, and
// it shares the host's kernel with every command.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tidewait/internal/capacity"
	"tidewait/internal/vm"
	"tidewait/internal/vm/host"
	"tidewait/internal/vm/process/shim"
	"tidewait/internal/vm/segment"
	"tidewait/internal/vm/tail"
)

// Name is the backend's name in mission documents.
const Name = "process"

// overhead is memory of a machine beyond its command's, in MiB.
const overhead = 16

// minData is the least limit on the memory of a process, in MiB, that leaves the
// agent alive.
const minData = 64

// maxPids is how many processes a machine may have where cgroups work.
const maxPids = 2048

// visible are the paths of the host a command can read. Everything else it sees
// is its own.
var visible = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/alternatives", "/etc/ca-certificates", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/localtime", "/etc/mime.types", "/etc/ssl", "/etc/timezone",
}

// Options configure a Backend. Zero values have defaults.
type Options struct {
	Agent       string        // the guest agent; default: tidewait-guest beside the running program
	RunDir      string        // for this backend alone; required
	BootTimeout time.Duration // until the agent answers; default 10 s
	StepTimeout time.Duration // of Inject and of Collect; default 10 min
	KillGrace   time.Duration // between TERM and the end of the machine; default 10 s
	RunUser     string        // whom commands run as when this program is root; default nobody
	Lease       string        // file that says when machines with a keeper have to end; default: they need not
	Logger      *slog.Logger  // default: none
}

func (o Options) withDefaults() (Options, error) {
	if o.Agent == "" {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("find the guest agent: %w", err)
		}
		o.Agent = filepath.Join(filepath.Dir(self), "tidewait-guest")
	}
	setDefault(&o.BootTimeout, 10*time.Second)
	setDefault(&o.StepTimeout, 10*time.Minute)
	setDefault(&o.KillGrace, 10*time.Second)
	setDefault(&o.RunUser, "nobody")
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
}

var _ vm.Adopter = (*Backend)(nil)

// New returns a Backend. Probe says whether machines start.
func New(o Options) (*Backend, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	runs, err := host.OpenRuns[*machine](o.RunDir)
	if err != nil {
		return nil, err
	}
	user, err := host.Unprivileged(o.RunUser)
	if err != nil {
		return nil, err
	}
	return &Backend{opts: o, runs: runs, user: user}, nil
}

// Name implements [vm.Backend].
func (b *Backend) Name() string { return Name }

// Create implements [vm.Backend].
func (b *Backend) Create(ctx context.Context, s vm.Spec) (vm.VM, error) {
	if s.Image != "" {
		return nil, &vm.Failure{Code: vm.ImageInvalid, Message: fmt.Sprintf("the image %s cannot be used: commands of backend process are the node's own programs", s.Image)}
	}
	m, err := b.runs.Create(ctx, s.RunID, func(ctx context.Context, run *host.Run) (*machine, error) {
		m := b.newMachine(run)
		if err := m.start(ctx, b, s); err != nil {
			return nil, errors.Join(err, m.Kill(context.WithoutCancel(ctx)))
		}
		return m, nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Adopt implements [vm.Adopter].
func (b *Backend) Adopt(_ context.Context, runID string) (vm.Kept, error) {
	m, err := b.runs.Adopt(runID, func(run *host.Run) (*machine, error) {
		m := b.newMachine(run)
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
func (b *Backend) List(context.Context) ([]string, error) { return b.runs.List() }

// Starts implements [vm.Backend]: there is one way to start only.
func (b *Backend) Starts() vm.Starts { return vm.Starts{} }

// Destroy implements [vm.Backend].
func (b *Backend) Destroy(ctx context.Context, runID string) error {
	return b.runs.Destroy(ctx, runID)
}

// Probe implements [vm.Backend]: it starts a machine and runs uname -r in it.
func (b *Backend) Probe(ctx context.Context) vm.Report {
	began := time.Now()
	m, err := b.probe(ctx)
	report := vm.Report{Took: time.Since(began)}
	if err != nil {
		report.Why = err.Error()
		return report
	}
	report.OK, report.Info = true, m.Info()
	report.Overhead = capacity.Resources{MemoryMiB: overhead}
	report.Enforced = m.Cgroup != nil
	report.Why = "the disk is limited by the size of each file only"
	if m.Cgroup == nil {
		report.Why += "; " + m.whyNoCgroup
	}
	if err := b.probeNetwork(ctx); err != nil {
		report.Why += "; machines cannot be on a network: " + err.Error()
	} else {
		report.Network = true
	}
	return report
}

const probeRun = "probe"

func (b *Backend) probe(ctx context.Context) (m *machine, err error) {
	defer func() {
		err = errors.Join(err, b.Destroy(context.WithoutCancel(ctx), probeRun))
	}()
	made, err := b.Create(ctx, vm.Spec{RunID: probeRun, CPUMilli: 1000, MemoryMiB: 128, DiskMiB: 16})
	if err != nil {
		return nil, err
	}
	return made.(*machine), vm.CheckKernel(ctx, made)
}

// probeNetwork starts a machine that is alone on a segment.
func (b *Backend) probeNetwork(ctx context.Context) (err error) {
	network, err := segment.Alone(probeRun)
	if err != nil {
		return err
	}
	defer network.Close()
	defer func() {
		err = errors.Join(err, b.Destroy(context.WithoutCancel(ctx), probeRun))
	}()
	_, err = b.Create(ctx, vm.Spec{RunID: probeRun, CPUMilli: 1000, MemoryMiB: 128, DiskMiB: 16, NIC: network.NIC(0)})
	return err
}

// machine is one set of namespaces. It implements [vm.VM], and [vm.Kept] when it has
// a keeper.
type machine struct {
	host.Guest
	run         *host.Run
	stderr      tail.Tail // of the agent
	whyNoCgroup string
	onSegment   bool
}

func (b *Backend) newMachine(run *host.Run) *machine {
	m := &machine{run: run}
	m.StepTimeout, m.KillGrace, m.LastWords = b.opts.StepTimeout, b.opts.KillGrace, m.lastWords
	return m
}

// lastWords are what the guest agent said last.
func (m *machine) lastWords() string {
	if kept, ok := m.Process.(*host.KeptProcess); ok {
		return kept.Words().Stderr
	}
	return m.stderr.LastLine()
}

func (m *machine) start(ctx context.Context, b *Backend, s vm.Spec) error {
	run := m.run
	agent, err := os.Open(b.opts.Agent)
	if err != nil {
		return fmt.Errorf("the guest agent: %w; build it with make, or set its path", err)
	}
	defer agent.Close()
	if err := b.makeDirs(run); err != nil {
		return err
	}
	if err := m.limit(run, s); err != nil {
		return err
	}
	m.onSegment = s.NIC != nil
	c := shim.Config{Paths: visible, MaxFile: max(s.DiskMiB, 1) << 20, Network: s.Network()}
	if m.Cgroup == nil {
		c.MaxData = max(s.MemoryMiB, minData) << 20
	}
	config, err := json.Marshal(c)
	if err != nil {
		return err
	}
	files := []*os.File{agent, nil}
	if s.NIC != nil {
		files = append(files, s.NIC.Cable)
	}
	cmd := &exec.Cmd{
		Path:        fmt.Sprintf("/proc/self/fd/%d", shim.AgentFD), // whose path its user may not be able to reach
		Args:        []string{"tidewait-guest", shim.Argument, string(config)},
		Env:         []string{},
		ExtraFiles:  files,
		SysProcAttr: b.attr(),
	}
	conn, err := m.spawn(b, cmd, s.Keep)
	if err != nil {
		return err
	}
	if err := m.Confine(run); err != nil {
		conn.Close()
		return err
	}
	return m.Greet(ctx, conn, s, b.opts.BootTimeout)
}

// spawn starts the first process, and returns the connection to the guest agent.
func (m *machine) spawn(b *Backend, cmd *exec.Cmd, keep bool) (net.Conn, error) {
	const guestAt = shim.ConnFD - shim.AgentFD
	var keeping *host.Keeping
	if keep {
		keeping = &host.Keeping{Program: b.opts.Agent, Lease: b.opts.Lease}
	}
	cmd.Stdout, cmd.Stderr = &m.stderr, &m.stderr
	p, conn, err := host.StartGuest(cmd, guestAt, m.run, m.run.Dir, keeping)
	if err != nil {
		return nil, err
	}
	m.Process = p
	return conn, nil
}

// Keep implements [vm.Kept].
func (m *machine) Keep() error { return m.Guest.Keep(m.run, m.Info()) }

// makeDirs makes the directory of the run the user's own, with a workspace and
// a place for the root in it.
func (b *Backend) makeDirs(run *host.Run) error {
	for _, name := range []string{".", "workspace", "root"} {
		dir := filepath.Join(run.Dir, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if b.user == nil {
			continue
		}
		if err := os.Chown(dir, int(b.user.UID), int(b.user.GID)); err != nil {
			return err
		}
	}
	return nil
}

// limit makes the cgroup of the machine where that is allowed.
func (m *machine) limit(run *host.Run, s vm.Spec) error {
	cgroup, err := host.NewCgroup(run.Name(), host.Limits{MemoryMiB: s.MemoryMiB + overhead, Pids: maxPids})
	if errors.Is(err, host.ErrNoCgroups) {
		m.whyNoCgroup = "CPU is not limited, and memory only for each process: " + err.Error()
	} else if err != nil {
		return err
	}
	m.Cgroup = cgroup
	return run.Record(m.Cgroup, nil)
}

// attr are the namespaces of a machine. Root in them is an unprivileged user of
// the host.
func (b *Backend) attr() *syscall.SysProcAttr {
	uid, gid := os.Geteuid(), os.Getegid()
	if b.user != nil {
		uid, gid = int(b.user.UID), int(b.user.GID)
	}
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
		GidMappingsEnableSetgroups: b.user != nil,
		Credential:                 &syscall.Credential{NoSetGroups: b.user == nil},
	}
}

// Info implements [vm.VM].
func (m *machine) Info() vm.Info {
	if m.run.Kept != nil {
		return *m.run.Kept
	}
	network := "no network"
	if m.onSegment {
		network = "a private network with the machines of its run only"
	}
	isolation := "no virtual machine: Linux namespaces (user, process, mount, network, IPC, UTS) on the host's own kernel, " +
		"read-only system directories, " + network + ", no new privileges, no capabilities"
	if m.Cgroup == nil {
		isolation += "; CPU is not limited, and memory only for each process"
	}
	return vm.Info{Accel: "none", Kernel: m.Session.Hello().Kernel, Isolation: isolation}
}
