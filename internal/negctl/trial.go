package negctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"tidewait/internal/api"
	"tidewait/internal/local"
)

// patience bounds every wait of a control, and trialTime a whole one; what they wait
// for comes sooner, or never. A microVM boots for minutes on a machine without KVM
// that is busy with other things.
const (
	patience  = 4 * time.Minute
	trialTime = 5 * time.Minute
)

// trial is one control while it is run. Its methods end it at the first fact that
// is not as it must be, so that a control reads as what has to happen.
type trial struct {
	*stack
	ctx      context.Context //nolint:containedctx // a trial is one call
	prefix   string          // of the names of its missions and nodes
	observed []string
	measured []string
	missions []string
	nodes    []*local.Worker
	undo     []func()
}

// fault ends a trial: the fact that was not as it must be.
type fault struct{ problem string }

// impossible ends a trial that this machine cannot make.
type impossible struct{ why string }

// try runs one control and cleans up behind it.
func (s *stack) try(ctx context.Context, c Control) (r Result) {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	t := &trial{stack: s, ctx: ctx, prefix: "c" + strings.ReplaceAll(c.ID, "-", "")}
	began := time.Now()
	r = Result{Control: c}
	defer func() {
		switch e := recover().(type) {
		case nil:
			r.OK = true
		case fault:
			r.Problem = e.problem
		case impossible:
			r.OK, r.NotRun = true, e.why
		default:
			panic(e)
		}
		r.Observed, r.Measured, r.Took = t.observed, t.measured, time.Since(began).Round(time.Millisecond)
		if r.Observed == nil {
			r.Observed = []string{}
		}
		t.cleanUp()
	}()
	c.run(t)
	return r
}

// cleanUp undoes what the trial did to the stack and takes its missions and nodes
// away, whatever became of it.
func (t *trial) cleanUp() {
	for i := len(t.undo) - 1; i >= 0; i-- {
		t.undo[i]()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, m := range t.missions {
		_, _, _ = t.run(ctx, "mission", "cancel", m) // one that has ended says so
	}
	t.ended(ctx, t.missions)
	for _, n := range t.nodes {
		_ = n.Stop()
	}
	for _, n := range t.nodes {
		_, _ = t.db.Exec(ctx, "UPDATE nodes SET admin_state = 'retired' WHERE id = $1", n.Name)
	}
}

// later is done when the trial is over, the last thing first.
func (t *trial) later(f func()) { t.undo = append(t.undo, f) }

func (t *trial) fail(format string, args ...any) { panic(fault{fmt.Sprintf(format, args...)}) }

// must ends the trial when it could not be made as intended.
func (t *trial) must(err error, doing string) {
	if err != nil {
		t.fail("%s: %v", doing, err)
	}
}

// equal compares a fact with what it must be, and keeps it as observed.
func equal[T comparable](t *trial, what string, want, got T) {
	if want != got {
		t.fail("%s is %v, must be %v", what, got, want)
	}
	t.observed = append(t.observed, fmt.Sprintf("%s %v", what, got))
}

// contains wants a text to have a part, which is kept as observed.
func (t *trial) contains(what, part, text string) {
	if !strings.Contains(text, part) {
		t.fail("%s is %q, must have %q", what, text, part)
	}
	t.observed = append(t.observed, fmt.Sprintf("%s has %q", what, part))
}

// same wants two moments to be one.
func (t *trial) same(what string, want, got time.Time) {
	if !want.Equal(got) {
		t.fail("%s was %s and is %s now", what, want.UTC().Format(time.RFC3339Nano), got.UTC().Format(time.RFC3339Nano))
	}
	t.observed = append(t.observed, what+" unchanged")
}

// within wants something to have come after something else, and soon.
func (t *trial) within(what string, most, got time.Duration) {
	if got < 0 || got > most {
		t.fail("%s is %s, must be 0s to %s", what, got, most)
	}
	t.observed = append(t.observed, fmt.Sprintf("%s at most %s", what, most))
	t.measure("%s %s", what, got.Round(time.Millisecond))
}

func (t *trial) measure(format string, args ...any) {
	t.measured = append(t.measured, fmt.Sprintf(format, args...))
}

// until waits for a condition. A transient error of the question is no answer.
func (t *trial) until(what string, holds func() (bool, error)) {
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if last := poll(ctx, holds); ctx.Err() != nil {
		t.fail("it did not happen within %s that %s%s", patience, what, last)
	}
}

// poll asks until a condition holds or ctx ends. It returns the last error in
// words.
func poll(ctx context.Context, holds func() (bool, error)) (last string) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds()
		if ok && err == nil {
			return ""
		}
		if err != nil {
			last = ": " + err.Error()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last
		}
	}
}

// pause waits until a moment.
func (t *trial) pause(until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
		t.fail("interrupted: %v", context.Cause(t.ctx))
	}
}

// tidewait runs the command line and returns what it printed and its exit code.
func (t *trial) tidewait(args ...string) (stdout, stderr string, code int) {
	stdout, stderr, code = t.run(t.ctx, args...)
	return stdout, stderr, code
}

// run runs the command line; the code is -1 when it could not be run.
func (s *stack) run(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	cmd := exec.CommandContext(ctx, s.opts.Tidewait, args...)
	cmd.Env = s.environment()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", err.Error(), -1
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// do runs the command line, which must succeed.
func (t *trial) do(args ...string) string {
	out, errs, code := t.tidewait(args...)
	if code != 0 {
		t.fail("`tidewait %s` ended with %d: %s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// named is the trial's own name for a mission or a node.
func (t *trial) named(name string) string { return t.prefix + "-" + name }

// launch launches a mission and returns how that ended.
func (t *trial) launch(d document, flags ...string) (stderr string, code int) {
	path := t.write(d)
	t.missions = append(t.missions, t.named(d.name))
	_, stderr, code = t.tidewait(append([]string{"mission", "launch", path}, flags...)...)
	return stderr, code
}

// accepted launches a mission, which must be accepted.
func (t *trial) accepted(d document) {
	if stderr, code := t.launch(d); code != 0 {
		t.fail("mission %s was not accepted: exit %d: %s", d.name, code, stderr)
	}
}

func (t *trial) show(name string) api.MissionDetail {
	m, err := t.detail(t.ctx, t.named(name))
	t.must(err, "show mission "+name)
	return m
}

func (s *stack) detail(ctx context.Context, name string) (api.MissionDetail, error) {
	var m api.MissionDetail
	out, errs, code := s.run(ctx, "mission", "show", name, "-o", "json")
	if code != 0 {
		return m, errors.New(strings.TrimSpace(errs))
	}
	return m, json.Unmarshal([]byte(out), &m)
}

// becomes waits until a mission is as wanted. One that ends before that never
// will be.
func (t *trial) becomes(name, what string, wanted func(api.MissionDetail) bool) api.MissionDetail {
	var m api.MissionDetail
	t.until("mission "+name+" "+what, func() (ok bool, err error) {
		if m, err = t.detail(t.ctx, t.named(name)); err != nil || wanted(m) {
			return err == nil, err
		}
		if m.EndedAt != nil {
			t.fail("mission %s ended as %s (%s) before it %s: %s", name, m.Status, m.FailureCode, what, m.Failure)
		}
		return false, nil
	})
	return m
}

func (t *trial) running(name string) {
	t.becomes(name, "runs its command", func(m api.MissionDetail) bool { return m.PhaseList[0].Step == "run" })
}

func (t *trial) waiting(name string) api.Wait {
	m := t.becomes(name, "waits", func(m api.MissionDetail) bool {
		if runs := m.PhaseList[0].Runs; len(runs) > 0 {
			t.fail("mission %s, which must wait, has run %s on %s", name, runs[0].ID, runs[0].Node)
		}
		return m.PhaseList[0].Wait != nil
	})
	return *m.PhaseList[0].Wait
}

func (t *trial) over(name string) api.MissionDetail {
	return t.becomes(name, "ends", func(m api.MissionDetail) bool { return m.EndedAt != nil })
}

// cancel ends a mission and waits until it has ended.
func (t *trial) cancel(name string) {
	t.do("mission", "cancel", t.named(name))
	t.over(name)
}

// count asks the stack's database for a number.
func (t *trial) count(sql string, args ...any) int {
	var n int
	t.must(t.db.QueryRow(t.ctx, sql, args...).Scan(&n), "ask the database")
	return n
}

// rows are how many wait rows, run rows and phase rows a mission has.
func (t *trial) rows(name string) (waits, runs, phases int) {
	err := t.db.QueryRow(t.ctx, `
SELECT count(w.phase_id), count(r.id), count(DISTINCT p.id) FROM missions m LEFT JOIN mission_phases p ON p.mission_id = m.id
LEFT JOIN capacity_waits w ON w.phase_id = p.id LEFT JOIN topology_runs r ON r.phase_id = p.id WHERE m.name = $1`, t.named(name)).
		Scan(&waits, &runs, &phases)
	t.must(err, "count the rows of mission "+name)
	return waits, runs, phases
}

// node starts the agent of a node of the backend process with room for one phase
// of a trial. env adds to its settings.
func (t *trial) node(name string, env ...string) *local.Worker {
	n, err := t.product.StartNode(t.ctx, t.named(name), append([]string{
		"TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_NODE_CPUS=2", "TIDEWAIT_NODE_MEMORY=600Mi", "TIDEWAIT_NODE_DISK=4Gi",
		"TIDEWAIT_LOG_LEVEL=debug",
	}, env...)...)
	t.must(err, "start node "+name)
	t.nodes = append(t.nodes, n)
	return n
}

func (t *trial) nodeState(name string) (string, error) {
	out, errs, code := t.tidewait("node", "show", t.named(name), "-o", "json")
	if code != 0 {
		return "", errors.New(errs)
	}
	var n api.NodeDetail
	err := json.Unmarshal([]byte(out), &n)
	return n.State, err
}

func (t *trial) write(d document) string {
	work := filepath.Join(t.dir, "workspace")
	path, err := d.write(filepath.Join(t.dir, "missions"), t.named(d.name), work)
	t.must(err, "write mission "+d.name)
	return path
}

// constraint is the name of the constraint that refused a statement; an error of
// another kind ends the trial.
func (t *trial) constraint(err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		if err == nil {
			return "none: it was accepted"
		}
		t.fail("the statement failed in another way: %v", err)
	}
	return pg.ConstraintName
}
