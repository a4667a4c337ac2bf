package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits are what a cgroup grants from its start. [Cgroup.LimitCPU] comes later,
// so that a machine starts as fast as the host can.
type Limits struct {
	MemoryMiB int64
	Pids      int64
}

// ErrNoCgroups is matched by the error of NewCgroup when this program may not
// make any.
var ErrNoCgroups = errors.New("no writable cgroup with the controllers cpu, memory and pids")

// Cgroup is a group of processes with limits. The nil Cgroup has none.
type Cgroup struct {
	v2     bool
	groups map[string]string // directory by controller; with version 2 one, under ""
}

const (
	cgroupRoot = "/sys/fs/cgroup"
	cgroupName = "tidewait"
	cpuPeriod  = 100_000 // microseconds
)

// NewCgroup makes a group of version 2, or one of version 1 in each controller.
func NewCgroup(name string, l Limits) (*Cgroup, error) {
	var fsType unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &fsType); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCgroups, err)
	}
	if fsType.Type == unix.CGROUP2_SUPER_MAGIC {
		return newV2(name, l)
	}
	return newV1(name, l)
}

// newV2 makes a group below this program's own, or below the root.
func newV2(name string, l Limits) (*Cgroup, error) {
	var failed []error
	for _, base := range []string{filepath.Join(cgroupRoot, ownCgroup()), cgroupRoot} {
		dir, err := makeV2(base, name)
		if err == nil {
			c := &Cgroup{v2: true, groups: map[string]string{"": dir}}
			err = c.set("", map[string]string{
				"memory.max": strconv.FormatInt(l.MemoryMiB<<20, 10),
				"pids.max":   strconv.FormatInt(l.Pids, 10),
			})
			if err == nil {
				return c, nil
			}
			err = errors.Join(err, removeEmpty(c.dirs()))
		}
		failed = append(failed, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrNoCgroups, errors.Join(failed...))
}

func makeV2(base, name string) (string, error) {
	parent := filepath.Join(base, cgroupName)
	if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	for _, dir := range []string{base, parent} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu +memory +pids"), 0); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

// openCgroup is the group of an earlier program, by its directories; without any
// it is nil.
func openCgroup(dirs []string) *Cgroup {
	if len(dirs) == 0 {
		return nil
	}
	c := &Cgroup{groups: map[string]string{}}
	for _, dir := range dirs {
		controller, _, _ := strings.Cut(strings.TrimPrefix(dir, cgroupRoot+"/"), "/")
		c.groups[controller] = dir
	}
	if _, v1 := c.groups["memory"]; !v1 {
		c.v2, c.groups = true, map[string]string{"": dirs[0]}
	}
	return c
}

// ownCgroup is the path of this program's group of version 2.
func ownCgroup() string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "/"
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(path)
		}
	}
	return "/"
}

func newV1(name string, l Limits) (*Cgroup, error) {
	c := &Cgroup{groups: map[string]string{}}
	for controller, values := range map[string]map[string]string{
		"cpu":    {},
		"memory": {"memory.limit_in_bytes": strconv.FormatInt(l.MemoryMiB<<20, 10)},
		"pids":   {"pids.max": strconv.FormatInt(l.Pids, 10)},
	} {
		dir := filepath.Join(cgroupRoot, controller, cgroupName, name)
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			c.groups[controller] = dir
			err = c.set(controller, values)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoCgroups, errors.Join(err, removeEmpty(c.dirs())))
		}
	}
	return c, nil
}

// LimitCPU grants thousandths of a CPU.
func (c *Cgroup) LimitCPU(milli int64) error {
	quota := max(milli*cpuPeriod/1000, 1000)
	switch {
	case c == nil:
		return nil
	case c.v2:
		return c.set("", map[string]string{"cpu.max": fmt.Sprintf("%d %d", quota, cpuPeriod)})
	default:
		return c.set("cpu", map[string]string{
			"cpu.cfs_period_us": strconv.Itoa(cpuPeriod),
			"cpu.cfs_quota_us":  strconv.FormatInt(quota, 10),
		})
	}
}

func (c *Cgroup) set(controller string, values map[string]string) error {
	for file, value := range values {
		if err := os.WriteFile(filepath.Join(c.groups[controller], file), []byte(value), 0); err != nil {
			return fmt.Errorf("set %s to %s: %w", file, value, err)
		}
	}
	return nil
}

// Add puts a process into the group.
func (c *Cgroup) Add(p Child) error {
	for _, dir := range c.dirs() {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.PID())), 0); err != nil {
			return fmt.Errorf("put process %d into its cgroup: %w", p.PID(), err)
		}
	}
	return nil
}

// OOMKills counts the processes of the group that were killed because memory
// ran out.
func (c *Cgroup) OOMKills() int64 {
	if c == nil {
		return 0
	}
	file := filepath.Join(c.groups["memory"], "memory.oom_control")
	if c.v2 {
		file = filepath.Join(c.groups[""], "memory.events")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}

// Remove removes the group, whose processes have been killed. It waits for them
// to leave as long as ctx lasts, and may be called again when that was not
// enough.
func (c *Cgroup) Remove(ctx context.Context) error { return removeCgroups(ctx, c.dirs()) }

func (c *Cgroup) dirs() []string {
	if c == nil {
		return nil
	}
	var dirs []string
	for _, dir := range c.groups {
		dirs = append(dirs, dir)
	}
	return dirs
}

// emptyPause lies between two tries to remove groups that are not empty yet.
const emptyPause = 5 * time.Millisecond

// removeCgroups removes groups when the killed processes have left them, which
// may be later than the end of the process that was waited for. It tries again
// after a pause, because version 1 tells nobody of an empty group.
func removeCgroups(ctx context.Context, dirs []string) error {
	err := removeEmpty(dirs)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	ctx, cancel := patience(ctx)
	defer cancel()
	pause := time.NewTicker(emptyPause)
	defer pause.Stop()
	for errors.Is(err, unix.EBUSY) {
		select {
		case <-pause.C:
			err = removeEmpty(dirs)
		case <-ctx.Done():
			return fmt.Errorf("wait for killed processes to leave their cgroup: %w: %w", context.Cause(ctx), err)
		}
	}
	return err
}

// removeEmpty removes those of the groups that it can. A group that is not there
// is success.
func removeEmpty(dirs []string) error {
	var failed []error
	for _, dir := range dirs {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			failed = append(failed, fmt.Errorf("remove the cgroup %s: %w", dir, err))
		}
	}
	return errors.Join(failed...)
}
