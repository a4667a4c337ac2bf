// Package negctl is the product's negative controls: each provokes something that
// must fail, on a stack of its own with the product's own programs, and asserts
// that it fails in its own way, with the literal code, rows and exit code. A
// control that did not fail so is a fault of the product.
//
// That the controls themselves can fail is shown by sabotage: the same controls
// on a product without one of its safeties, see [Sabotage].
package negctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"tidewait/config"
)

// Control is one negative control.
type Control struct {
	ID       string `json:"id"`       // such as 2-down; all of one number are about one thing
	Provoked string `json:"provoked"` // what is done
	Expected string `json:"expected"` // how it must fail

	run func(*trial)
}

// Result is what became of one control.
type Result struct {
	Control
	OK       bool          `json:"ok"`                 // it failed in its own way, or was not run
	Observed []string      `json:"observed"`           // each fact that was compared, the same in every good run
	Measured []string      `json:"measured,omitempty"` // figures of this run
	Problem  string        `json:"problem,omitempty"`  // the first fact that was not as it must be
	NotRun   string        `json:"notRun,omitempty"`   // why this machine cannot provoke it
	Took     time.Duration `json:"took"`               // nanoseconds
}

// Controls lists all controls in the order in which they are run.
func Controls() []Control {
	return slices.Concat(launchControls, waitControls, boundControls, placeControls, constraintControls)
}

// Select returns the controls with the given ids. A number stands for all that
// begin with it: 2 is 2-size, 2-down and 2-retired. None given are all.
func Select(ids []string) ([]Control, error) {
	all := Controls()
	if len(ids) == 0 {
		return all, nil
	}
	matches := func(c Control, id string) bool { return c.ID == id || strings.HasPrefix(c.ID, id+"-") }
	for _, id := range ids {
		if !slices.ContainsFunc(all, func(c Control) bool { return matches(c, id) }) {
			return nil, fmt.Errorf("there is no control %q; list them with `tidewait negctl --list`", id)
		}
	}
	return slices.DeleteFunc(all, func(c Control) bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return matches(c, id) })
	}), nil
}

// Options say what to run and with what.
type Options struct {
	Controls []Control
	Settings config.Settings // the programs of the stack are found as `tidewait dev` finds them
	Tidewait string          // path of tidewait
	Worker   string          // path of tidewait-worker
	Log      *slog.Logger
	// Sabotage is what is taken out of the stack's database; nil: nothing.
	Sabotage *Sabotage
	// Variant says that the programs are those of a variant, which work on a stack
	// that is marked as theirs only.
	Variant bool

	// Steps is told what is done, Began of each control before it is run, and
	// Ended of each after that. None may be nil.
	Steps func(line string)
	Began func(Control)
	Ended func(Result)
	// Keep, when not nil, is called with the stack's directory and the variables
	// that commands need to use it, before the stack is stopped.
	Keep func(dir string, env []string)
}

// Run starts a stack, runs the controls on it one after another, and stops it.
// An error says that they could not be run; whether they failed as they must is
// in the results.
func Run(ctx context.Context, o Options) (results []Result, err error) {
	s, err := startStack(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if o.Keep != nil && ctx.Err() == nil {
			o.Keep(s.dir, s.product.Env())
		}
		err = errors.Join(err, s.stop())
	}()
	for _, c := range o.Controls {
		o.Began(c)
		r := s.try(ctx, c)
		if ctx.Err() != nil {
			return results, context.Cause(ctx)
		}
		o.Ended(r)
		results = append(results, r)
		if err := s.calm(ctx); err != nil {
			return results, fmt.Errorf("after control %s: %w", c.ID, err)
		}
	}
	return results, nil
}

// Failed lists the ids of the controls that did not fail in their own way.
func Failed(results []Result) []string {
	failed := []string{}
	for _, r := range results {
		if !r.OK {
			failed = append(failed, r.ID)
		}
	}
	return failed
}
