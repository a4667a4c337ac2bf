package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
	"tidewait/internal/vm/keeper"
)

// Sweep ends what earlier programs left behind that no journal names, and counts
// it: directories without a journal that can be read, keepers without a directory,
// with which their machines end, and cgroups without a run. It is called before
// anything is made here.
func (r *Runs[M]) Sweep(ctx context.Context) (vm.Leaks, error) {
	var leaks vm.Leaks
	known, broken, err := r.known()
	if err != nil {
		return leaks, err
	}
	leaks.Processes, err = r.sweepKeepers(ctx, known)
	for _, dir := range broken {
		leaks.Directories++
		err = errors.Join(err, os.RemoveAll(dir))
	}
	cgroups, cgroupErr := r.sweepCgroups(ctx, known)
	leaks.Cgroups = cgroups
	if err = errors.Join(err, cgroupErr); err != nil {
		return leaks, fmt.Errorf("end what was left in %s: %w", r.root, err)
	}
	return leaks, nil
}

// known returns the directories of runs, and those that have no journal.
func (r *Runs[M]) known() (known map[string]bool, broken []string, err error) {
	dirs, err := filepath.Glob(filepath.Join(r.root, "runs", "*"))
	if err != nil {
		return nil, nil, err
	}
	known = map[string]bool{}
	for _, dir := range dirs {
		switch _, err := readRun(dir); {
		case err == nil:
			known[dir] = true
		case errors.Is(err, errJournal), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			broken = append(broken, dir)
		default:
			return nil, nil, err
		}
	}
	return known, broken, nil
}

// sweepKeepers ends the keepers of directories that are not known. A keeper says
// in its arguments which is its directory.
func (r *Runs[M]) sweepKeepers(ctx context.Context, known map[string]bool) (int64, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	var found int64
	var failed []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir, ticks, ok := keeperOf(pid)
		if !ok || filepath.Dir(dir) != filepath.Join(r.root, "runs") || known[dir] {
			continue
		}
		found++
		failed = append(failed, killOther(ctx, pid, ticks))
	}
	return found, errors.Join(failed...)
}

// keeperOf returns the directory of the keeper that a process of this user is, and
// when it started.
func keeperOf(pid int) (dir string, ticks uint64, ok bool) {
	name := fmt.Sprintf("/proc/%d", pid)
	ticks, err := keeper.StartTicks(pid)
	if err != nil {
		return "", 0, false
	}
	var st unix.Stat_t
	if unix.Stat(name, &st) != nil || int(st.Uid) != os.Geteuid() {
		return "", 0, false
	}
	line, err := os.ReadFile(name + "/cmdline")
	if err != nil {
		return "", 0, false
	}
	args := bytes.Split(bytes.TrimSuffix(line, []byte{0}), []byte{0})
	if len(args) != 3 || string(args[1]) != keeper.Argument {
		return "", 0, false
	}
	return string(args[2]), ticks, true
}

// sweepCgroups removes the cgroups of this directory's runs that are not known,
// with what is in them. Those of one run are one leak.
func (r *Runs[M]) sweepCgroups(ctx context.Context, known map[string]bool) (int64, error) {
	runs := filepath.Join(r.root, "runs")
	dirs := map[string][]string{}
	for _, base := range cgroupBases() {
		found, err := filepath.Glob(filepath.Join(base, cgroupName, "*"+suffix(runs)))
		if err != nil {
			return 0, err
		}
		for _, dir := range found {
			name := strings.TrimSuffix(filepath.Base(dir), suffix(runs))
			if !known[filepath.Join(runs, name)] {
				dirs[name] = append(dirs[name], dir)
			}
		}
	}
	var failed []error
	for _, left := range dirs {
		for _, dir := range left {
			failed = append(failed, killIn(ctx, dir))
		}
		failed = append(failed, removeCgroups(ctx, left))
	}
	return int64(len(dirs)), errors.Join(failed...)
}

// cgroupBases are the directories below which cgroups of machines may be.
func cgroupBases() []string {
	bases := []string{cgroupRoot, filepath.Join(cgroupRoot, ownCgroup())}
	for _, controller := range []string{"cpu", "memory", "pids"} {
		bases = append(bases, filepath.Join(cgroupRoot, controller))
	}
	slices.Sort(bases)
	return slices.Compact(bases)
}

// killIn kills the processes of a cgroup.
func killIn(ctx context.Context, dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var failed []error
	for line := range strings.Lines(string(b)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || pid <= 1 || pid == os.Getpid() {
			continue
		}
		ticks, err := keeper.StartTicks(pid)
		if err == nil {
			failed = append(failed, killOther(ctx, pid, ticks))
		}
	}
	return errors.Join(failed...)
}
