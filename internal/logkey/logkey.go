// Package logkey has the names under which log records say what they are about:
// one spelling for each, so that one search finds everything.
package logkey

import (
	"context"
	"log/slog"
	"strings"

	"tidewait/internal/ledger"
)

// The keys. A record has those that the code knows where it is written.
const (
	Mission     = "mission"
	Launch      = "launch"
	Phase       = "phase"
	Run         = "run"
	Account     = "account"
	Lattice     = "lattice"
	Application = "application"
	Node        = "node"
	Gateway     = "gateway"
	Role        = "role"
)

// App is an application in three keys.
func App(key ledger.AppKey) slog.Attr {
	return slog.Group("", slog.String(Account, key.Account), slog.String(Lattice, key.Lattice), slog.String(Application, key.Name))
}

// OfWorkflow is what the id of a workflow says.
func OfWorkflow(id string) []slog.Attr {
	kind, rest, _ := strings.Cut(id, ".")
	first, rest, _ := strings.Cut(rest, ".")
	switch kind {
	case "mission":
		return []slog.Attr{slog.String(Mission, first)}
	case "phase":
		return []slog.Attr{slog.String(Mission, first), slog.String(Phase, rest)}
	case "lattice":
		return []slog.Attr{slog.String(Account, first), slog.String(Lattice, rest)}
	case "app":
		lattice, name, _ := strings.Cut(rest, ".")
		return []slog.Attr{slog.String(Account, first), slog.String(Lattice, lattice), slog.String(Application, name)}
	}
	return nil
}

// OfQueue is what the name of a task queue says.
func OfQueue(name string) []slog.Attr {
	kind, rest, _ := strings.Cut(name, ".")
	switch kind {
	case "node":
		return []slog.Attr{slog.String(Node, rest)}
	case "gateway":
		return []slog.Attr{slog.String(Gateway, rest)}
	}
	return nil
}

// What Temporal's SDK calls a workflow and a task queue in its records.
const (
	workflowID = "WorkflowID"
	taskQueue  = "TaskQueue"
)

// Temporal returns a handler that adds the keys to records of Temporal's SDK, among
// them all of workflows and activities: these name the workflow and the task queue,
// of which ours are made.
func Temporal(to slog.Handler) slog.Handler { return handler{to: to, has: map[string]bool{}} }

type handler struct {
	to  slog.Handler
	has map[string]bool // keys that all records have; never changed
}

func (h handler) Enabled(ctx context.Context, level slog.Level) bool { return h.to.Enabled(ctx, level) }

func (h handler) WithGroup(name string) slog.Handler { return handler{h.to.WithGroup(name), h.has} }

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	all, has := h.add(attrs)
	return handler{h.to.WithAttrs(all), has}
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	var own []slog.Attr
	r.Attrs(func(a slog.Attr) bool { own = append(own, a); return true })
	all, _ := h.add(own)
	r.AddAttrs(all[len(own):]...)
	return h.to.Handle(ctx, r)
}

// add returns the attributes, and behind them ours that follow from them and are
// not there yet.
func (h handler) add(attrs []slog.Attr) (all []slog.Attr, has map[string]bool) {
	has = make(map[string]bool, len(h.has)+len(attrs))
	for k := range h.has {
		has[k] = true
	}
	for _, a := range attrs {
		has[a.Key] = true
	}
	all = attrs[:len(attrs):len(attrs)]
	for _, a := range attrs {
		var ours []slog.Attr
		switch a.Key {
		case workflowID:
			ours = OfWorkflow(a.Value.String())
		case taskQueue:
			ours = OfQueue(a.Value.String())
		}
		for _, o := range ours {
			if !has[o.Key] {
				has[o.Key] = true
				all = append(all, o)
			}
		}
	}
	return all, has
}
