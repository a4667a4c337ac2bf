package wadmapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tidewait/internal/wadm"
)

// streams are as wadm makes them, with the subjects of one account. A wildcard
// for the account would be one pattern, but NATS refuses it: it would take
// JetStream's own subjects in.
func streams(account string) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		{
			Name: wadm.StatusStream, Subjects: []string{wadm.StatusSubject(account, "*", "*")},
			Description:       "statuses of applications",
			MaxMsgsPerSubject: 10, AllowDirect: true,
		},
		{
			Name: wadm.EventStream, Subjects: []string{wadm.EventSubject(account, "*", ">")},
			Description: "lifecycle events of applications",
			MaxAge:      70 * time.Second,
		},
	}
}

// ensure makes the streams take an account's subjects.
func (p *Publisher) ensure(ctx context.Context, account string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready[account] {
		return nil
	}
	for _, want := range streams(account) {
		if err := ensureStream(ctx, p.JS, want); err != nil {
			return fmt.Errorf("stream %s, for %s: %w", want.Name, want.Subjects[0], err)
		}
	}
	if p.ready == nil {
		p.ready = map[string]bool{}
	}
	p.ready[account] = true
	return nil
}

func (p *Publisher) forget(account string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ready, account)
}

// ensureStream makes a stream, or gives one that exists what it lacks. Another
// process may do the same at the same time.
func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = js.CreateStream(ctx, want); !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return err
		}
		stream, err = js.Stream(ctx, want.Name)
	}
	if err != nil {
		return err
	}
	have := stream.CachedInfo().Config
	next, changed := have, false
	if !covered(want.Subjects[0], have.Subjects) {
		next.Subjects, changed = append(append([]string{}, have.Subjects...), want.Subjects[0]), true
	}
	if want.AllowDirect && !have.AllowDirect {
		next.AllowDirect, changed = true, true
	}
	if !changed {
		return nil
	}
	_, err = js.UpdateStream(ctx, next)
	return err
}

// covered reports whether one of the patterns matches all that the subject, a
// pattern itself, does.
func covered(subject string, patterns []string) bool {
	for _, pattern := range patterns {
		if covers(strings.Split(pattern, "."), strings.Split(subject, ".")) {
			return true
		}
	}
	return false
}

func covers(pattern, subject []string) bool {
	for i, token := range pattern {
		switch {
		case i >= len(subject):
			return false
		case token == ">":
			return true
		case subject[i] == ">":
			return false
		case token != "*" && token != subject[i]:
			return false
		}
	}
	return len(pattern) == len(subject)
}
