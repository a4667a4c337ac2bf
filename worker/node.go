package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"tidewait/activities"
	"tidewait/config"
	"tidewait/internal/agent"
	"tidewait/internal/capacity"
	"tidewait/internal/logkey"
	"tidewait/internal/meter"
	"tidewait/internal/provision"
	"tidewait/internal/quantity"
	"tidewait/internal/runlog"
	"tidewait/internal/vm"
	"tidewait/internal/vm/host"
	"tidewait/internal/vm/image"
	"tidewait/internal/vm/process"
	"tidewait/internal/vm/qemu"
	"tidewait/internal/vm/rootfs"
	"tidewait/internal/vm/rootfs/layers"
	"tidewait/internal/vm/rootfs/source"
	"tidewait/workflows"
)

func runNode(ctx context.Context, svc *services, ready func()) error {
	s := svc.settings
	id, err := s.Node.EffectiveID()
	if err != nil {
		return err
	}
	svc.log = svc.log.With(logkey.Node, id)
	total, err := nodeResources(s)
	if err != nil {
		return err
	}
	bucket := func(ctx context.Context) error { return provision.NodeBucket(ctx, svc.js, id, s.Fleet) }
	if err := bucket(ctx); err != nil {
		return err
	}
	go provision.AfterReconnect(ctx, svc.nats, svc.log, bucket)
	dir := nodeDir(s, id)
	lock, err := agent.Lock(ctx, dir)
	if err != nil {
		return err
	}
	defer lock.Close() // when the queue is not served any more
	images, err := nodeImages(svc, id)
	if err != nil {
		return err
	}
	backends, err := nodeBackends(ctx, svc, dir)
	defer func() { closeBackends(backends, svc.log) }()
	if err != nil {
		return err
	}
	if err := meter.Starts(svc.meters, backends); err != nil {
		return err
	}
	former, err := formerBackends(dir, s.Node.Backends)
	if err != nil {
		return err
	}
	logs, closeLogs, err := runLogs(svc)
	if err != nil {
		return err
	}
	defer closeLogs()
	a, err := agent.New(ctx, agent.Options{
		Node: id, Version: version, Labels: s.Node.Labels, Total: total, StartLimit: s.Node.StartLimit,
		Heartbeat: s.Fleet.HeartbeatInterval, Lease: s.Fleet.Lease, StepTimeout: s.Node.StepTimeout, ProbeTimeout: s.Node.ProbeTimeout,
		KillGrace: s.Node.KillGrace, Dir: dir, KeepRuns: s.Node.KeepRuns,
		Limits: vm.Limits{Files: s.Node.ResultFiles, Bytes: s.Node.ResultBytes}, Backends: backends, Former: former, Images: images, NATS: svc.nats, Logs: logs, Log: svc.log,
		Loop: svc.health.Loop("heartbeat of node "+id, s.Fleet.HeartbeatInterval),
	})
	if err != nil {
		return err
	}
	taken := &slots{size: int(s.Node.Slots) + stopsAtOnce}
	w := worker.New(svc.temporal, workflows.NodeQueue(id), worker.Options{
		Interceptors:          []interceptor.WorkerInterceptor{taken},
		DeploymentOptions:     build(),
		DisableWorkflowWorker: true, WorkerStopTimeout: stopTime, MaxConcurrentActivityExecutionSize: taken.size,
		// A run learns of its cancellation with a heartbeat, so none is held back.
		MaxHeartbeatThrottleInterval: time.Second, DefaultHeartbeatThrottleInterval: time.Second,
	})
	(&activities.Node{Agent: a}).Register(w)

	// The engine hears of the node only when its queue is served.
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	svc.checkQueue("node", workflows.NodeQueue(id), enumspb.TASK_QUEUE_TYPE_ACTIVITY, taken)
	registered := make(chan struct{})
	go func() {
		select {
		case <-registered:
			ready()
		case <-ctx.Done():
		}
	}()
	err = a.Run(ctx, registered)

	stopping, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	a.Stop(stopping)
	var end *agent.Ended
	if errors.As(err, &end) {
		return nil // it was wanted, and the process's other roles go on
	}
	return err
}

// runLogs returns what publishes the output of machines, over a connection of its
// own.
func runLogs(svc *services) (p *runlog.Publisher, closeConn func(), err error) {
	s := svc.settings
	nc, err := config.ConnectNATS(s.NATS, "tidewait-worker, logs", svc.log, nats.ReconnectBufSize(-1))
	if err != nil {
		return nil, nil, err
	}
	p, err = runlog.New(nc, runlog.Limits{Bytes: s.Node.LogBytes, Rate: s.Node.LogRate, Buffer: s.Node.LogBuffer}, svc.log)
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return p, nc.Close, nil
}

// stopsAtOnce are activities beside those that hold the node's slots, so that a
// run can be stopped while all of them are in use. Placement never gives a node
// more runs than slots.
const stopsAtOnce = 4

// nodeDir is the directory of a node, with one of each backend in it.
func nodeDir(s config.Settings, id string) string { return filepath.Join(s.DataDir, "node", id) }

func nodeBackends(ctx context.Context, svc *services, dir string) ([]vm.Backend, error) {
	var backends []vm.Backend
	for _, name := range svc.settings.Node.Backends {
		b, err := newBackend(ctx, svc, name, dir)
		if err != nil {
			// A node whose microvm backend cannot work offers its others and
			// says why; it never runs something else in its place.
			if b, err = host.NewUnusable(name, filepath.Join(dir, name), err); err != nil {
				return backends, err
			}
		}
		backends = append(backends, b)
	}
	return backends, nil
}

// formerBackends are those that the node does not offer any more, and whose machines
// may still be there.
func formerBackends(dir string, offered []string) ([]vm.Backend, error) {
	var former []vm.Backend
	for _, name := range []string{qemu.Name, process.Name} {
		_, err := os.Stat(filepath.Join(dir, name))
		if slices.Contains(offered, name) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		b, err := host.NewUnusable(name, filepath.Join(dir, name), errNotOffered)
		if err != nil {
			return nil, err
		}
		former = append(former, b)
	}
	return former, nil
}

var errNotOffered = errors.New("node.backends does not name it any more")

// nodeImages is the cache of images, where some backend has a use for it.
func nodeImages(svc *services, id string) (*rootfs.Store, error) {
	n := svc.settings.Node
	if !slices.Contains(n.Backends, qemu.Name) {
		return nil, nil
	}
	return rootfs.Open(rootfs.Options{
		Dir: filepath.Join(svc.settings.DataDir, "node", id, "images"), Bytes: n.ImageCacheBytes, PullTimeout: n.ImageTimeout, Logger: svc.log,
		Limits: layers.Limits{Files: n.ImageFiles, Bytes: n.ImageBytes},
		Source: source.Options{Registries: n.ImageRegistries, Insecure: n.ImageInsecure, AuthFile: n.ImageAuth, Layouts: n.ImageLayouts},
	})
}

// closeBackends ends what backends do in the background.
func closeBackends(backends []vm.Backend, log *slog.Logger) {
	for _, b := range backends {
		if c, ok := b.(io.Closer); ok {
			if err := c.Close(); err != nil {
				log.Warn("a backend was not closed", "backend", b.Name(), "error", err)
			}
		}
	}
}

// newBackend sets a backend up in the directory of its node.
func newBackend(ctx context.Context, svc *services, name, node string) (vm.Backend, error) {
	s := svc.settings
	dir, lease := filepath.Join(node, name), agent.LeaseFile(node)
	switch name {
	case process.Name:
		return process.New(process.Options{
			RunDir: dir, StepTimeout: s.Node.StepTimeout, KillGrace: s.Node.KillGrace, RunUser: s.Node.RunUser, Lease: lease,
			Logger: svc.log,
		})
	case qemu.Name:
		img, err := image.Build(ctx, imageOptions(s))
		if err != nil {
			return nil, err
		}
		return qemu.New(qemu.Options{
			QEMU: s.Node.QEMU, Image: img, RunDir: dir, Accel: s.Node.Accel, BootTimeout: s.Node.BootTimeout,
			StepTimeout: s.Node.StepTimeout, KillGrace: s.Node.KillGrace, RunUser: s.Node.RunUser, Lease: lease, Logger: svc.log,
			Snapshots: s.Node.Snapshots, SnapshotBytes: s.Node.SnapshotBytes,
		})
	}
	return nil, fmt.Errorf("%w %q in node.backends", errUnknownBackend, name)
}

func imageOptions(s config.Settings) image.Options {
	dir := s.Node.GuestImage
	if dir == "" {
		dir = filepath.Join(s.DataDir, "guest")
	}
	return image.Options{Dir: dir, BootDir: s.Node.Kernel, ModulesDir: s.Node.Modules}
}

func guestImageCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "guest-image",
		Short:   "Build the guest image from this machine's kernel, when it is not up to date",
		Example: "  tidewait-worker guest-image --data-dir /var/lib/tidewait",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, _, err := settings(cmd)
			if err != nil {
				return err
			}
			began := time.Now()
			img, err := image.Build(cmd.Context(), imageOptions(s))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "guest image with kernel %s is in %s (%s)\n",
				img.KernelVersion, filepath.Dir(img.Initrd), time.Since(began).Round(time.Millisecond))
			return nil
		},
	}
}

// hostReserve is the memory a node keeps for the machine itself unless
// node.memory says what may be given away.
const hostReserve = 512

// nodeResources is what the node offers: the settings', else the machine's.
func nodeResources(s config.Settings) (capacity.Resources, error) {
	r := capacity.Resources{CPUMilli: int64(s.Node.CPUs * 1000), Slots: s.Node.Slots}
	if r.CPUMilli == 0 {
		r.CPUMilli = int64(runtime.NumCPU()) * 1000
	}
	var err error
	if r.MemoryMiB, err = memoryMiB(s.Node.Memory); err != nil {
		return r, err
	}
	r.DiskMiB, err = diskMiB(s.Node.Disk, s.DataDir)
	return r, err
}

func memoryMiB(configured string) (int64, error) {
	if configured != "" {
		return quantity.MiB(configured)
	}
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("read the machine's memory, or set node.memory: %w", err)
	}
	total := int64(info.Totalram) * int64(info.Unit) >> 20 //nolint:gosec // a machine's memory fits
	return max(total-hostReserve, 0), nil
}

func diskMiB(configured, dir string) (int64, error) {
	if configured != "" {
		return quantity.MiB(configured)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("read the free space of %s, or set node.disk: %w", dir, err)
	}
	free := int64(fs.Bavail) * fs.Bsize >> 20 //nolint:gosec // a disk's size fits
	return free * 9 / 10, nil
}
