package main

import (
	"context"
	"fmt"
	"time"

	"tidewait/internal/api"
	"tidewait/internal/render"
)

// drainEvery is how often a node is looked at while somebody waits for it.
const drainEvery = time.Second

// awaitDrained returns when a draining node holds nothing, and tells on standard
// error what it still holds whenever that changes. When somebody ends the drain,
// that is an error.
func (c *cli) awaitDrained(ctx context.Context, e *engine, node api.Node) (api.Node, error) {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for told := ""; ; {
		now, err := ask[api.NodeDetail](ctx, e, api.SubjectNodeShow, api.NameRequest{Name: node.ID})
		if err != nil {
			return node, err
		}
		state := now.State
		if now.Decided != "" {
			state = now.Decided // it is silent
		}
		switch state {
		case "drained", "retired":
			return now.Node, nil
		case "draining":
		default:
			return node, fmt.Errorf("node %s is %s: somebody ended its drain", now.ID, state)
		}
		if says := holding(now); says != told {
			told = says
			fmt.Fprintln(c.errs, says)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return node, context.Cause(ctx)
		}
	}
}

// holding says what a node still holds.
func holding(n api.NodeDetail) string {
	says := fmt.Sprintf("node %s holds", render.Clean(n.ID))
	for i, r := range n.Runs {
		if i > 0 {
			says += ","
		}
		says += fmt.Sprintf(" %s of %s/%s (%s)", r.ID, render.Clean(r.Mission), render.Clean(r.Phase), r.Step)
	}
	switch {
	case n.Uploads > 0 && len(n.Runs) > 0:
		says += fmt.Sprintf(", and the results of %d that are not committed yet", n.Uploads)
	case n.Uploads > 0:
		says += fmt.Sprintf(" the results of %d run(s) that are not committed yet", n.Uploads)
	case len(n.Runs) == 0:
		says += " nothing any more"
	}
	return says
}
