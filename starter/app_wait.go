package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"tidewait/internal/render"
	"tidewait/internal/wadm"
)

// settleInterval lies between two looks at an application that is waited for,
// when nothing is published about it.
const settleInterval = 2 * time.Second

// drawInterval is the same where a terminal is redrawn: instances come without
// another status.
const drawInterval = time.Second

// waiter waits until an application runs or has failed, or is deployed no more.
type waiter struct {
	*apps
	name   string
	tell   func(line string) // of a change, where nothing is redrawn
	screen *screen           // nil: lines
	reply  *wadm.StatusReply // the last one; nil: none yet
	lost   bool              // the last look failed
}

// status is how the application was last seen; nil: it was not.
func (w *waiter) status() *wadm.Status {
	if w.reply == nil {
		return nil
	}
	return w.reply.Status
}

func newWaiter(a *apps, name string) *waiter {
	out := a.cli.out
	if a.cli.structured() {
		out = a.cli.errs
	}
	return &waiter{apps: a, name: name, screen: a.cli.newScreen(), tell: func(line string) { fmt.Fprintln(out, line) }}
}

// await looks whenever a status is published, and every settleInterval. What is
// published only wakes it: it may be older than what the API answers.
func (w *waiter) await(ctx context.Context) error {
	news := make(chan struct{}, 1)
	published, err := w.client.Conn.Subscribe(wadm.StatusSubject(w.account, w.lattice, w.name), func(*nats.Msg) {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return failed("cannot listen for news of application %s on %s: %w", w.name, w.url, err)
	}
	defer func() { _ = published.Unsubscribe() }()
	every := settleInterval
	if w.screen != nil {
		every = drawInterval
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	resized := resizes(ctx)
	for !w.over(ctx) {
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		case <-ticker.C:
		case <-resized:
		}
	}
	return nil
}

// over looks, and reports whether there is nothing more to wait for.
func (w *waiter) over(ctx context.Context) bool {
	reply, err := askStatus(ctx, w.apps, w.name)
	if err != nil {
		w.unanswered(ctx, err)
		return false
	}
	w.lost = false
	if w.screen != nil {
		_ = w.screen.draw(w.progress(ctx, w.name, *reply.Status))
	} else if w.reply == nil || !render.SameStatus(w.status().Status, reply.Status.Status) {
		w.tell(statusLine(w.name, reply.Status.Status))
	}
	w.reply = &reply
	switch reply.Status.Status.Type {
	case wadm.Deployed, wadm.Failed:
		return true
	case wadm.Undeployed:
		return w.isUndeployed(ctx)
	}
	return false
}

// unanswered tells of a server that does not answer, once: it may come back.
func (w *waiter) unanswered(ctx context.Context, err error) {
	if !w.lost && ctx.Err() == nil {
		if w.screen != nil {
			w.screen.leave()
		}
		w.cli.note("tidewait: %v; still waiting for application %s", err, w.name)
	}
	w.lost = true
}

// isUndeployed asks the versions: a server may call undeployed what it has not
// begun to deploy.
func (w *waiter) isUndeployed(ctx context.Context) bool {
	history, err := askApps(ctx, w.apps, func(ctx context.Context) (wadm.VersionsReply, error) {
		return w.client.Versions(ctx, w.name)
	})
	if err != nil {
		return errors.Is(err, wadm.ErrNotFound)
	}
	return !slices.ContainsFunc(history.Versions, func(v wadm.VersionInfo) bool { return v.Deployed })
}
