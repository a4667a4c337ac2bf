package health

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// checkTime bounds one check.
const checkTime = 2 * time.Second

type check struct {
	name string
	run  func(context.Context) error
}

// Check adds what has to be so for the process to be ready. The error says what is
// not so.
func (h *Health) Check(name string, run func(context.Context) error) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, check{name, run})
}

// Result is what became of one check.
type Result struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// Report is what became of all, by name.
type Report struct {
	OK     bool     `json:"ok"`
	Checks []Result `json:"checks"`
}

func (r *Report) add(res Result) {
	r.OK = r.OK && res.OK
	r.Checks = append(r.Checks, res)
}

var errSlow = errors.New("no answer within " + checkTime.String())

// Ready runs all checks at once. One that does not end in time has failed, also
// when it does not mind that its time is over.
func (h *Health) Ready(ctx context.Context) Report {
	var checks []check
	for _, part := range h.all() {
		part.mu.Lock()
		checks = append(checks, part.checks...)
		part.mu.Unlock()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, checkTime, errSlow)
	defer cancel()
	results := make([]Result, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { results[i] = c.result(ctx) })
	}
	wg.Wait()
	slices.SortStableFunc(results, func(a, b Result) int { return cmp.Compare(a.Name, b.Name) })
	r := Report{OK: true, Checks: []Result{}}
	for _, res := range results {
		r.add(res)
	}
	return r
}

func (c check) result(ctx context.Context) Result {
	ended := make(chan error, 1)
	go func() { ended <- c.run(ctx) }()
	var err error
	select {
	case err = <-ended:
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return Result{Name: c.name, Error: err.Error()}
	}
	return Result{Name: c.name, OK: true}
}
