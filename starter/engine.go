package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/natsrpc"
	"tidewait/internal/release"
)

// How long a peer may take to answer.
const (
	engineTimeout  = 5 * time.Second
	gatewayTimeout = 60 * time.Second // it may have to write a bundle
)

// engine asks the API over NATS.
type engine struct {
	conn *nats.Conn
	url  string // for messages, without passwords
}

// engine connects to NATS. The caller closes it.
func (c *cli) engine(ctx context.Context, s config.Settings) (*engine, error) {
	conn, err := c.dialNATS(ctx, s)
	if err != nil {
		return nil, err
	}
	return &engine{conn: conn, url: safeURL(s.NATS.URL)}, nil
}

func (e *engine) close() { e.conn.Close() }

// withEngine loads the settings, connects and runs do.
func (c *cli) withEngine(cmd *cobra.Command, do func(context.Context, *engine) error) error {
	settings, err := c.load(cmd)
	if err != nil {
		return err
	}
	e, err := c.engine(cmd.Context(), settings)
	if err != nil {
		return err
	}
	defer e.close()
	return do(cmd.Context(), e)
}

// ask sends a request to the engine and reads its reply.
func ask[Reply any](ctx context.Context, e *engine, subject string, request any) (Reply, error) {
	return exchange[Reply](ctx, e, subject, request, peer{
		name:    "engine",
		remedy:  "start one with `tidewait dev` or `tidewait-worker run --roles engine`, or set nats.url",
		timeout: engineTimeout,
	})
}

// askGateway sends a request to one gateway and reads its reply.
func askGateway[Reply any](ctx context.Context, e *engine, id, verb string, request any) (Reply, error) {
	return exchange[Reply](ctx, e, api.SubjectGateway(id, verb), request, peer{
		name:    "gateway " + id,
		remedy:  "it holds the mission's results, so start that gateway again",
		timeout: gatewayTimeout,
	})
}

// suits asks an engine whether it takes this release of the command line, before a
// command that the engine does not answer itself. When there is none to ask, nobody
// objects: the command says what it finds.
func (c *cli) suits(ctx context.Context, s config.Settings) error {
	asking, cancel := context.WithTimeout(ctx, suitsTimeout)
	defer cancel()
	e, err := c.engine(asking, s)
	if err != nil {
		return ctx.Err()
	}
	defer e.close()
	if _, err := ask[api.EngineRelease](asking, e, api.SubjectRelease, struct{}{}); natsrpc.IsSkew(err) {
		return err
	}
	return ctx.Err()
}

// suitsTimeout bounds what a command that does without an engine waits for one.
const suitsTimeout = time.Second

// peer is who answers a request, and what to do when nobody does.
type peer struct {
	name, remedy string
	timeout      time.Duration
}

// noAnswer says that a peer is not there, or as good as that.
type noAnswer struct{ sentence string }

func (n *noAnswer) Error() string { return n.sentence }

func exchange[Reply any](ctx context.Context, e *engine, subject string, request any, to peer) (Reply, error) {
	var reply Reply
	body, err := json.Marshal(request)
	if err != nil {
		return reply, fmt.Errorf("cannot write a request to %s: %w", subject, err)
	}
	asking, cancel := context.WithTimeout(ctx, to.timeout)
	defer cancel()
	answer, err := e.conn.RequestMsgWithContext(asking, natsrpc.Request(subject, body))
	switch {
	case ctx.Err() != nil:
		return reply, ctx.Err()
	case errors.Is(err, nats.ErrNoResponders):
		return reply, unreachable("%w", &noAnswer{fmt.Sprintf("no %s answers on %s; %s", to.name, e.url, to.remedy)})
	case notAllowed(e.conn) != nil:
		return reply, failed("NATS on %s does not allow this: %w", e.url, notAllowed(e.conn))
	case errors.Is(err, context.DeadlineExceeded):
		return reply, unreachable("%w", &noAnswer{fmt.Sprintf("the %s on %s did not answer in %s; %s", to.name, e.url, to.timeout, to.remedy)})
	case err != nil:
		return reply, unreachable("cannot ask the %s on %s: %w", to.name, e.url, err)
	}
	return reply, open(answer, &reply)
}

// notAllowed is what the server refused to let through of a connection that asks one
// thing at a time; nil: nothing. Whoever asked hears nothing of it otherwise.
func notAllowed(conn *nats.Conn) error {
	err := conn.LastError()
	switch {
	case !errors.Is(err, nats.ErrPermissionViolation):
		return nil
	case strings.Contains(err.Error(), `Subscription to "`+cmp.Or(conn.Opts.InboxPrefix, nats.InboxPrefix)):
		return fmt.Errorf("%w; is nats.inbox_prefix that of the user?", err)
	}
	return err
}

// open reads the envelope of a reply into its content.
func open(answer *nats.Msg, content any) error {
	if err := natsrpc.CheckReply(answer); err != nil {
		return refusal(err)
	}
	var envelope api.Reply
	if err := json.Unmarshal(answer.Data, &envelope); err != nil {
		return fmt.Errorf("the reply on %s is not one of Tidewait's: %w", answer.Subject, err)
	}
	if envelope.Error != nil {
		return refusal(envelope.Error)
	}
	if err := json.Unmarshal(envelope.OK, content); err != nil {
		return fmt.Errorf("the reply does not fit this version of tidewait: %w", err)
	}
	return nil
}

// refusal gives an error of the API its exit code.
func refusal(err error) error {
	var refused *api.Error
	if !errors.As(err, &refused) {
		return err
	}
	switch refused.Code {
	case "invalid", release.CodeTooOld, release.CodeTooNew:
		return &fault{exitUsage, err}
	case "unavailable":
		return &fault{exitUnreachable, err}
	}
	return &fault{exitFailed, err}
}

// isNotFound reports whether the API knows no such thing.
func isNotFound(err error) bool {
	var refused *api.Error
	return errors.As(err, &refused) && refused.Code == "not_found"
}
