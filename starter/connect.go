package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"tidewait/config"
	"tidewait/internal/provision"
)

// connectTimeout bounds the wait for a service that may be down.
const connectTimeout = 3 * time.Second

// startOne is what to do about a service that does not answer.
func startOne(key string) string {
	return fmt.Sprintf("start the stack with `tidewait dev`, or set %s", key)
}

// dialTemporal connects to Temporal. The caller closes the client.
func (c *cli) dialTemporal(ctx context.Context, s config.Settings) (client.Client, error) {
	options, err := config.TemporalOptions(s, c.log())
	if err != nil {
		return nil, &fault{exitUsage, err}
	}
	dialing, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := client.DialContext(dialing, options)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, unreachable("cannot reach Temporal at %s: %s; %s",
			options.HostPort, temporalCause(err), cmp.Or(s.Temporal.Meaning(err), startOne("temporal.address")))
	}
	return conn, nil
}

// dialNamespace connects to Temporal as dialTemporal does, and refuses a namespace
// in which this program could not read, or would write in plain text what is
// encrypted there.
func (c *cli) dialNamespace(ctx context.Context, s config.Settings) (client.Client, error) {
	conn, err := c.dialTemporal(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := c.checkEncryption(ctx, s, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func (c *cli) checkEncryption(ctx context.Context, s config.Settings, conn client.Client) error {
	options, err := config.TemporalOptions(s, c.log())
	if err != nil {
		return &fault{exitUsage, err}
	}
	codec, err := config.PayloadCodec(s.Temporal)
	if err != nil {
		return &fault{exitUsage, err}
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	key, err := provision.EncryptionKey(ctx, conn, options.Namespace)
	if err != nil {
		return temporalFault(err)
	}
	if err := provision.Allows(options.Namespace, key, codec); err != nil {
		return &fault{exitUsage, err}
	}
	return nil
}

// temporalCause is the part of a connection error a person can use.
func temporalCause(err error) string {
	var slow *serviceerror.DeadlineExceeded
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) {
		return fmt.Sprintf("no answer in %s", connectTimeout)
	}
	text := err.Error()
	for _, inner := range []string{"dial tcp ", "tls: ", "x509: "} {
		if i := strings.LastIndex(text, inner); i >= 0 {
			return strings.Trim(text[i:], `"`)
		}
	}
	return strings.TrimPrefix(text, "failed reaching server: ")
}

// temporalFault explains an error of a call to Temporal, where it can be.
func temporalFault(err error) error {
	var (
		down      *serviceerror.Unavailable
		namespace *serviceerror.NamespaceNotFound
	)
	switch {
	case errors.As(err, &namespace):
		return unreachable("Temporal has no namespace %q; create it with `tidewait setup`, or set temporal.namespace", namespace.Namespace)
	case errors.As(err, &down):
		return unreachable("Temporal stopped answering: %s; %s", temporalCause(err), startOne("temporal.address"))
	}
	return err
}

// dialNATS connects to NATS. The caller closes the connection.
func (c *cli) dialNATS(ctx context.Context, s config.Settings) (*nats.Conn, error) {
	type outcome struct {
		conn *nats.Conn
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		conn, err := config.ConnectNATS(s.NATS, "tidewait CLI", c.log())
		done <- outcome{conn, err}
	}()
	var o outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		go closeLate(func() *nats.Conn { return (<-done).conn })
		return nil, ctx.Err()
	case <-time.After(connectTimeout):
		go closeLate(func() *nats.Conn { return (<-done).conn })
		o.err = fmt.Errorf("no answer in %s", connectTimeout)
	}
	var file *config.FileFault
	switch {
	case errors.As(o.err, &file):
		return nil, &fault{exitUsage, fmt.Errorf("cannot connect to NATS: %w", file)}
	case o.err != nil:
		return nil, unreachable("cannot reach NATS at %s: %s; %s",
			safeURL(s.NATS.URL), natsCause(o.err), cmp.Or(s.NATS.Meaning(o.err), startOne("nats.url")))
	}
	return o.conn, nil
}

// closeLate closes a connection that came after nobody waited for it.
func closeLate(wait func() *nats.Conn) {
	if conn := wait(); conn != nil {
		conn.Close()
	}
}

// natsCause is the innermost error: the outer ones name the address again.
func natsCause(err error) string {
	if errors.Is(err, nats.ErrNoServers) {
		return "no server takes the connection"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// safeURL returns a list of URLs without what can hold a password.
func safeURL(list string) string {
	urls := strings.Split(list, ",")
	for i, text := range urls {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Host == "" {
			urls[i] = "(not shown)"
			continue
		}
		urls[i] = u.Scheme + "://" + u.Host
	}
	return strings.Join(urls, ",")
}
