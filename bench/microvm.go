package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewait/internal/vm"
	"tidewait/internal/vm/host"
	"tidewait/internal/vm/image"
	"tidewait/internal/vm/process"
	"tidewait/internal/vm/qemu"
)

// microVMJobs measures whole jobs in a microVM: start, 1 MB in, a command that
// does next to nothing, 1 MB out, destroy. The reference of a booted one is QEMU
// with the very same arguments, whose first user instruction ends the guest; that
// of one from a snapshot is the same job, booted.
func microVMJobs(ctx context.Context, b *bench) ([]line, error) {
	m, err := newMicroVM(ctx, b)
	if err != nil {
		return nil, err
	}
	defer m.fast.Close()
	var bare sample
	booted, restored, plain, kept := newJobs(), newJobs(), newJobs(), newJobs()
	err = b.repeat(ctx, b.rounds(10, 2), func(ctx context.Context, i int) error {
		b.say("microvm: round %d", i+1)
		took, err := m.bare(ctx)
		if err != nil {
			return err
		}
		bare = append(bare, milliseconds(took))
		if err := booted.add(m.job(ctx, m.backend, fmt.Sprintf("job-%d", i))); err != nil {
			return err
		}
		if err := restored.add(m.job(ctx, m.fast, fmt.Sprintf("job-%d", i))); err != nil {
			return err
		}
		for j := range 5 { // they are short
			if err := plain.add(m.job(ctx, m.plain, fmt.Sprintf("job-%d-%d", i, j))); err != nil {
				return err
			}
			if err := kept.add(m.job(ctx, keeping{m.plain}, fmt.Sprintf("kept-%d-%d", i, j))); err != nil {
				return err
			}
		}
		return nil
	}, func() bool {
		return booted.of["job"].per(bare).wide() || restored.of["job"].per(booted.of["job"]).wide()
	})
	if err != nil {
		return nil, err
	}
	lines := []line{{
		measure: "job, booted, " + m.accel, figure: booted.of["job"], unit: " ms",
		reference: "QEMU until the first user instruction", known: bare, aim: atMost(1.5),
	}}
	lines = append(lines, booted.parts()...)
	const same = "the same job, booted"
	lines = append(lines,
		line{measure: "job, from a snapshot", figure: restored.of["job"], unit: " ms", reference: same, known: booted.of["job"], aim: atMost(0.25)},
		line{measure: "its processor time", figure: restored.cpu, unit: " ms", reference: same, known: booted.cpu})
	lines = append(lines, restored.parts()...)
	lines = append(lines, line{measure: "job, process", figure: plain.of["job"], unit: " ms", aim: atMost(25)})
	lines = append(lines, plain.parts()...)
	const unkept = "the same job, without"
	lines = append(lines,
		line{measure: "job, process, with a keeper", figure: kept.of["job"], unit: " ms", reference: unkept, known: plain.of["job"], aim: atMost(25), absolute: true},
		line{measure: "its processor time", figure: kept.cpu, unit: " ms", reference: unkept, known: plain.cpu})
	for _, clients := range []int{1, 2, 4} {
		rate, err := m.rate(ctx, b, clients)
		if err != nil {
			return nil, err
		}
		l := line{measure: fmt.Sprintf("jobs from a snapshot, %d at once", clients), figure: rate, unit: "/s"}
		if clients == runtime.NumCPU() {
			l.aim = atLeast(4)
		}
		lines = append(lines, l)
	}
	if s := m.fast.Starts(); s.Cold > 0 {
		return nil, fmt.Errorf("%d of the machines from a snapshot were booted: %s", s.Cold, s.Why)
	}
	return lines, nil
}

// jobs are what several jobs took.
type jobs struct {
	order []string
	of    map[string]sample // milliseconds, by part
	cpu   sample            // milliseconds of processor time
}

func newJobs() *jobs { return &jobs{of: map[string]sample{}} }

func (j *jobs) add(parts []part, err error) error {
	if err != nil {
		return err
	}
	j.order = j.order[:0]
	for _, p := range parts {
		if p.name == ofProcessors {
			j.cpu = append(j.cpu, milliseconds(p.took))
			continue
		}
		j.order = append(j.order, p.name)
		j.of[p.name] = append(j.of[p.name], milliseconds(p.took))
	}
	return nil
}

// parts are the lines of the parts, without the whole.
func (j *jobs) parts() []line {
	var lines []line
	for _, name := range j.order[1:] {
		lines = append(lines, line{measure: "of that, " + name, figure: j.of[name], unit: " ms"})
	}
	return lines
}

// rate is how many jobs from a snapshot end in a second when so many run at once.
func (m *microVM) rate(ctx context.Context, b *bench, clients int) (sample, error) {
	var rates sample
	each := b.repetitions(8, 1)
	err := b.repeat(ctx, b.rounds(3, 1), func(ctx context.Context, round int) error {
		b.say("microvm: %d at once, round %d", clients, round+1)
		began := time.Now()
		g, ctx := errgroup.WithContext(ctx)
		for c := range clients {
			g.Go(func() error {
				for i := range each {
					if _, err := m.job(ctx, m.fast, fmt.Sprintf("many-%d-%d", c, i)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		rates = append(rates, float64(clients*each)/time.Since(began).Seconds())
		return nil
	}, rates.wide)
	return rates, err
}

// keeping is a backend whose machines can outlive the program.
type keeping struct{ vm.Backend }

// Create implements [vm.Backend].
func (k keeping) Create(ctx context.Context, s vm.Spec) (vm.VM, error) {
	s.Keep = true
	return k.Backend.Create(ctx, s)
}

// microVM is the state of the section.
type microVM struct {
	backend   *qemu.Backend // boots
	fast      *qemu.Backend // restores
	plain     vm.Backend    // starts processes
	image     image.Image
	input     []byte   // a tar stream of 1 MB
	arguments []string // with which the backend started QEMU, program first
	accel     string
	initrd    string // with nothing but an init that ends the guest
	disk      string
}

const (
	jobBytes  = 1 << 20
	jobDisk   = 64  // MiB
	jobMemory = 512 // MiB
)

func newMicroVM(ctx context.Context, b *bench) (*microVM, error) {
	b.say("microvm: building the image and booting once")
	dir := filepath.Join(b.dir, "microvm")
	img, err := image.Build(ctx, image.Options{Dir: filepath.Join(dir, "image"), Agent: b.program("tidewait-guest")})
	if err != nil {
		return nil, err
	}
	m := &microVM{image: img, initrd: filepath.Join(dir, "initrd"), disk: filepath.Join(dir, "disk")}
	if m.input, err = archive(jobBytes); err != nil {
		return nil, err
	}
	if m.backend, err = qemu.New(qemu.Options{Image: img, RunDir: filepath.Join(dir, "runs"), BootTimeout: time.Minute}); err != nil {
		return nil, err
	}
	if err := m.learn(ctx); err != nil {
		return nil, err
	}
	if err := os.WriteFile(m.initrd, poweringOff(), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(m.disk, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(m.disk, jobDisk<<20); err != nil {
		return nil, err
	}
	m.plain, err = process.New(process.Options{Agent: b.program("tidewait-guest"), RunDir: filepath.Join(dir, "processes")})
	if err != nil {
		return nil, err
	}
	b.say("microvm: making a snapshot")
	m.fast, err = qemu.New(qemu.Options{Image: img, RunDir: filepath.Join(dir, "fast"), Snapshots: 1, BootTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	if err := m.fast.Snapshot(ctx, jobSpec("")); err != nil {
		return nil, errors.Join(err, m.fast.Close())
	}
	return m, nil
}

func jobSpec(id string) vm.Spec {
	return vm.Spec{RunID: id, CPUMilli: 1000, MemoryMiB: jobMemory, DiskMiB: jobDisk}
}

// learn boots a guest and reads QEMU's arguments from the running process.
func (m *microVM) learn(ctx context.Context) error {
	guest, err := m.backend.Create(ctx, jobSpec("first"))
	if err != nil {
		return err
	}
	m.accel = guest.Info().Accel
	for _, pid := range childrenOf(os.Getpid()) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if err == nil && strings.Contains(filepath.Base(words[0]), "qemu-system") {
			m.arguments = words
		}
	}
	if m.arguments == nil {
		err = errors.New("the backend booted a guest, but no child of this process is QEMU")
	}
	return errors.Join(err, m.backend.Destroy(ctx, "first"))
}

// bare runs QEMU as the backend does, on an initramfs whose init ends the guest.
func (m *microVM) bare(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	files := make([]*os.File, 0, 4) // in the backend's order: kernel, initramfs, disk, agent
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, name := range []string{m.image.Kernel, m.initrd, m.disk} {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return 0, err
		}
		files = append(files, f)
	}
	ours, theirs, err := host.SocketPair()
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	files = append(files, theirs)

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, m.arguments[0], m.arguments[1:]...)
	cmd.Env, cmd.ExtraFiles = []string{}, files
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("QEMU on its own: %w: %s", err, said.String())
	}
	took := time.Since(began)
	if strings.Contains(said.String(), "panic") {
		return 0, fmt.Errorf("the guest without anything to do panicked: %s", said.String())
	}
	return took, nil
}

// part is a part of a job.
type part struct {
	name string
	took time.Duration
}

// ofProcessors names the part that is not a time on the clock.
const ofProcessors = "processor time"

// childrenTime is the processor time of all programs this one has waited for.
func childrenTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u) // only a wrong pointer makes it fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// job runs a job and returns what it took, and what each of its steps did. The
// command moves the file, so that there is something to collect.
func (m *microVM) job(ctx context.Context, backend vm.Backend, id string) (parts []part, err error) {
	began, cpu := time.Now(), childrenTime()
	last := began
	step := func(name string) {
		now := time.Now()
		parts = append(parts, part{name, now.Sub(last)})
		last = now
	}
	guest, err := backend.Create(ctx, jobSpec(id))
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, backend.Destroy(context.WithoutCancel(ctx), id))
		step("destroy")
		parts = append([]part{{"job", last.Sub(began)}}, append(parts, part{ofProcessors, childrenTime() - cpu})...)
	}()
	step("start")
	if _, err := guest.Inject(ctx, bytes.NewReader(m.input)); err != nil {
		return nil, err
	}
	step("1 MB in")
	exit, err := guest.Run(ctx, vm.Command{Argv: []string{"mv", "data", "moved"}}, nil)
	if err != nil || exit != (vm.Exit{}) {
		return nil, errors.Join(err, fmt.Errorf("the command ended with %+v", exit))
	}
	step("command")
	result, err := guest.Collect(ctx, nil, vm.Limits{Files: 10, Bytes: 2 * jobBytes}, io.Discard)
	if err == nil && result.Bytes != jobBytes {
		err = fmt.Errorf("%d bytes came out instead of %d", result.Bytes, jobBytes)
	}
	step("1 MB out")
	return parts, err
}

// archive is a tar stream with one file of n random bytes.
func archive(n int) ([]byte, error) {
	data := make([]byte, n)
	if _, err := rand.Read(data); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	if err := tw.WriteHeader(&tar.Header{Name: "data", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(n)}); err != nil {
		return nil, err
	}
	if _, err := tw.Write(data); err != nil {
		return nil, err
	}
	return buf.Bytes(), tw.Close()
}
