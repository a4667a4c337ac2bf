// Package host keeps the machines of a backend on a host: a directory and a
// journal per run that outlive the program ([Runs]), processes that do not
// ([Process]), and limits on them ([Cgroup]).
package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tidewait/internal/boot"
	"tidewait/internal/vm"
	"tidewait/internal/vm/keeper"
	"tidewait/internal/wholefile"
)

// Machine is what [Runs] keeps.
type Machine interface {
	// Kill ends the machine and everything it holds outside its run's
	// directory, and waits for that as long as ctx lasts. It may be called more
	// than once, and goes on where it failed before.
	Kill(ctx context.Context) error
}

// Runs holds the machines of one backend by run. It is safe for concurrent use.
// A directory belongs to one program at a time.
type Runs[M Machine] struct {
	root string

	mu    sync.Mutex
	slots map[string]*slot[M]
}

// slot is a run whose machine is being made, or has been.
type slot[M Machine] struct {
	cancel context.CancelCauseFunc
	ready  chan struct{} // closed when machine or err is set
	m      M
	err    error
}

// OpenRuns uses root, and makes it when it is not there.
func OpenRuns[M Machine](root string) (*Runs[M], error) {
	if root == "" {
		return nil, errors.New("machines need a directory for their runs")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(root, "runs"), 0o711); err != nil {
		return nil, fmt.Errorf("make the directory of runs: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(root, "runs", "*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range left {
		if _, err := os.Stat(filepath.Join(dir, journalName)); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(filepath.Join(dir, journalName+wholefile.Draft)) // whose writer died before it had a name
		}
		_ = os.Remove(dir) // of a run that was about to begin or to go; any other is not empty, and stays
	}
	return &Runs[M]{root: root, slots: map[string]*slot[M]{}}, nil
}

// Root is the directory; what is not of one run may be kept in it.
func (r *Runs[M]) Root() string { return r.root }

const maxRunID = 512 // bytes

// errDestroyed is why the making of a machine ends when its run is destroyed.
var errDestroyed = errors.New("the run was destroyed")

// Create returns the machine of a run, and makes it with start when there is
// none. When start fails nothing of the run is left, or, if that takes too long,
// its journal: the run is listed and can be destroyed. What an earlier program
// left of the run is removed first.
func (r *Runs[M]) Create(ctx context.Context, runID string, start func(context.Context, *Run) (M, error)) (M, error) {
	var none M
	if runID == "" || len(runID) > maxRunID {
		return none, fmt.Errorf("a run id of %d bytes cannot be used; 1 to %d are allowed", len(runID), maxRunID)
	}
	r.mu.Lock()
	if s, ok := r.slots[runID]; ok {
		r.mu.Unlock()
		select {
		case <-s.ready:
			return s.m, s.err
		case <-ctx.Done():
			return none, fmt.Errorf("wait for the machine of run %s: %w", runID, context.Cause(ctx))
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &slot[M]{cancel: cancel, ready: make(chan struct{})}
	r.slots[runID] = s
	r.mu.Unlock()

	s.m, s.err = r.make(ctx, runID, start)
	if s.err != nil {
		r.mu.Lock()
		delete(r.slots, runID)
		r.mu.Unlock()
	}
	close(s.ready)
	return s.m, s.err
}

func (r *Runs[M]) make(ctx context.Context, runID string, start func(context.Context, *Run) (M, error)) (M, error) {
	var none M
	if err := r.remove(ctx, runID); err != nil {
		return none, err
	}
	run := &Run{ID: runID, Dir: r.dir(runID)}
	if err := run.create(); err != nil {
		return none, errors.Join(err, os.RemoveAll(run.Dir))
	}
	m, err := start(ctx, run)
	if err != nil {
		return none, errors.Join(err, r.remove(context.WithoutCancel(ctx), runID))
	}
	return m, nil
}

// Adopt makes the machine that an earlier program kept, as take finds it, one of
// these.
func (r *Runs[M]) Adopt(runID string, take func(*Run) (M, error)) (M, error) {
	var none M
	run, err := readRun(r.dir(runID))
	if err != nil {
		return none, fmt.Errorf("adopt run %s: %w", runID, err)
	}
	m, err := take(run)
	if err != nil {
		return none, fmt.Errorf("adopt run %s: %w", runID, err)
	}
	s := &slot[M]{cancel: func(error) {}, ready: make(chan struct{}), m: m}
	close(s.ready)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots[runID] = s
	return m, nil
}

// Destroy ends the machine of a run, whoever started it, and removes its
// directory. A run that is not there is success.
func (r *Runs[M]) Destroy(ctx context.Context, runID string) error {
	r.mu.Lock()
	s, ok := r.slots[runID]
	r.mu.Unlock()
	if ok {
		s.cancel(errDestroyed)
		select {
		case <-s.ready:
		case <-ctx.Done():
			return fmt.Errorf("destroy run %s: its machine is still being made: %w", runID, context.Cause(ctx))
		}
		if s.err == nil {
			if err := s.m.Kill(ctx); err != nil {
				return fmt.Errorf("destroy run %s: %w", runID, err)
			}
		}
	}
	if err := r.remove(ctx, runID); err != nil {
		return err
	}
	r.mu.Lock()
	if r.slots[runID] == s {
		delete(r.slots, runID)
	}
	r.mu.Unlock()
	return nil
}

// List names the runs that left anything behind, sorted.
func (r *Runs[M]) List() ([]string, error) {
	journals, err := filepath.Glob(filepath.Join(r.root, "runs", "*", journalName))
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, j := range journals {
		run, err := readRun(filepath.Dir(j))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errJournal) {
			continue // destroyed meanwhile, or for Sweep
		}
		if err != nil {
			return nil, fmt.Errorf("list the runs: %w", err)
		}
		ids = append(ids, run.ID)
	}
	slices.Sort(ids)
	return ids, nil
}

// remove ends what the journal of a run names, and removes its directory.
func (r *Runs[M]) remove(ctx context.Context, runID string) error {
	dir := r.dir(runID)
	run, err := readRun(dir)
	if err == nil {
		err = run.kill(ctx)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = removeRun(dir)
	}
	if err != nil {
		return fmt.Errorf("destroy run %s: %w", runID, err)
	}
	return nil
}

// removeRun removes a run's directory, its journal last: whoever is killed
// meanwhile leaves something that is listed, and so removed later.
func removeRun(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == journalName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// dir is where a run lives: a readable part of its id and a digest of all of it.
func (r *Runs[M]) dir(runID string) string {
	plain := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
			return c
		}
		return '_'
	}, runID)
	sum := sha256.Sum256([]byte(runID))
	return filepath.Join(r.root, "runs", plain[:min(len(plain), 40)]+"."+hex.EncodeToString(sum[:6]))
}

const journalName = "journal.json"

// Run is the journal of one run. It is written before a process is started, and
// again when its id is known.
type Run struct {
	ID         string   `json:"runID"`
	Dir        string   `json:"-"`
	PID        int      `json:"pid,omitempty"`
	StartTicks uint64   `json:"startTicks,omitempty"` // of the process, since boot; tells a reused id
	BootID     string   `json:"bootID,omitempty"`     // of the host
	Cgroups    []string `json:"cgroups,omitempty"`
	Keeper     *proc    `json:"keeper,omitempty"`
	Kept       *vm.Info `json:"kept,omitempty"` // what the machine is, once it may outlive its program
}

// proc is a process that is told from others with its id by when it started.
type proc struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"startTicks"` // clock ticks since the host's boot
}

func (r *Run) create() error {
	if err := os.Mkdir(r.Dir, 0o711); err != nil {
		return fmt.Errorf("make the directory of run %s: %w", r.ID, err)
	}
	return r.write()
}

// Record journals the cgroups of the run and, once there is one, its process.
func (r *Run) Record(c *Cgroup, p Child) error {
	r.Cgroups = c.dirs()
	if p != nil {
		ticks, err := keeper.StartTicks(p.PID())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r.PID, r.StartTicks, r.BootID = p.PID(), ticks, boot.ID()
	}
	return r.write()
}

func (r *Run) write() error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := wholefile.Replace(filepath.Join(r.Dir, journalName), b); err != nil {
		return fmt.Errorf("write the journal of run %s: %w", r.ID, err)
	}
	return nil
}

func readRun(dir string) (*Run, error) {
	b, err := os.ReadFile(filepath.Join(dir, journalName))
	if err != nil {
		return nil, err
	}
	run, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", filepath.Join(dir, journalName), errJournal, err)
	}
	run.Dir = dir
	return run, nil
}

// errJournal says that a journal cannot be read: the host lost power while it was
// written, or it is none.
var errJournal = errors.New("no journal of a run")

// decode reads a journal. Processes in it are such that a signal for one of them
// can hit no other: their ids are of single processes, and not the first.
func decode(b []byte) (*Run, error) {
	run := &Run{}
	if err := json.Unmarshal(b, run); err != nil {
		return nil, err
	}
	if run.ID == "" || len(run.ID) > maxRunID {
		return nil, fmt.Errorf("its run id has %d bytes", len(run.ID))
	}
	if run.PID < 0 || run.PID == 1 {
		return nil, fmt.Errorf("%d is no process of a machine", run.PID)
	}
	if run.Keeper != nil && run.Keeper.PID <= 1 {
		return nil, fmt.Errorf("%d is no process of a keeper", run.Keeper.PID)
	}
	for _, dir := range run.Cgroups {
		if filepath.Clean(dir) != dir || filepath.Base(filepath.Dir(dir)) != cgroupName || !strings.HasPrefix(dir, cgroupRoot+"/") {
			return nil, fmt.Errorf("%q is no cgroup of a machine", dir)
		}
	}
	return run, nil
}

// kill ends the process of a run that another program started, unless its id
// belongs to another process by now.
func (r *Run) kill(ctx context.Context) error {
	if r.BootID == boot.ID() {
		if r.PID != 0 {
			if err := killOther(ctx, r.PID, r.StartTicks); err != nil {
				return err
			}
		}
		if r.Keeper != nil {
			if err := killOther(ctx, r.Keeper.PID, r.Keeper.StartTicks); err != nil {
				return err
			}
		}
	}
	return removeCgroups(ctx, r.Cgroups)
}

// Name is unique among the runs of all directories of the host and fit for a
// file name. It ends with the suffix of its directory.
func (r *Run) Name() string { return filepath.Base(r.Dir) + suffix(filepath.Dir(r.Dir)) }

// suffix is the same for all runs of one directory, and for no others.
func suffix(runs string) string {
	sum := sha256.Sum256([]byte(runs))
	return "." + hex.EncodeToString(sum[:6])
}
