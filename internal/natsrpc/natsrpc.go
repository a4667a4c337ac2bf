// Package natsrpc serves typed request/reply handlers as a NATS micro service,
// with the envelope of package api. Requests and replies say the release of the
// program they come from, and programs that do not work together refuse each other.
package natsrpc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"tidewait/internal/api"
	"tidewait/internal/release"
)

// Handler answers one request.
type Handler func(ctx context.Context, data []byte) (any, error)

// ErrInvalid marks a request that could not be read.
var ErrInvalid = errors.New("the request is not valid")

// With adapts a handler of a typed request. An empty body is the zero request.
func With[T any](f func(context.Context, T) (any, error)) Handler {
	return func(ctx context.Context, data []byte) (any, error) {
		var req T
		if len(data) > 0 {
			if err := json.Unmarshal(data, &req); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
			}
		}
		return f(ctx, req)
	}
}

// Service is a set of handlers by subject.
type Service struct {
	Name, Version, Description string
	Handlers                   map[string]Handler
	// Code maps an error to a code of api.Error; empty means "internal".
	Code func(error) string
	// Time bounds the work for one request; 0: 5 s.
	Time time.Duration
	// Parallel is how many requests of a subject each instance works on at a time,
	// where one waits for others elsewhere; 0: one.
	Parallel int
	// Served, when not nil, is given what tells whether the service is still served,
	// before the first request is.
	Served func(check func() error)
	// Release is what the service says of itself and judges requests by; zero: that
	// of this program.
	Release release.Release
	// Refused, when not nil, is told of each request that was refused for its release.
	Refused func(ctx context.Context, data []byte, skew *release.Skew)
	Log     *slog.Logger
}

// instances is how many copies of the service one process runs: micro runs an
// endpoint's handlers one after another, and one slow answer must not hold up
// the next.
const instances = 4

// requestTime bounds the work for one request, unless its service says otherwise.
const requestTime = 5 * time.Second

// Serve answers until ctx ends. ready, when not nil, is called once requests
// are answered.
func (s Service) Serve(ctx context.Context, nc *nats.Conn, ready func()) error {
	var working sync.WaitGroup
	defer working.Wait()
	var served []micro.Service
	for range instances {
		svc, err := micro.AddService(nc, micro.Config{Name: s.Name, Version: s.Version, Description: s.Description})
		if err != nil {
			return fmt.Errorf("register service %s with NATS: %w", s.Name, err)
		}
		defer func() { _ = svc.Stop() }()
		served = append(served, svc)
		for subject, h := range s.Handlers {
			endpoint := strings.NewReplacer(".", "-", "*", "any").Replace(subject)
			if err := svc.AddEndpoint(endpoint, s.handler(ctx, nc, h, &working), micro.WithEndpointSubject(subject)); err != nil {
				return fmt.Errorf("register %s with NATS: %w", subject, err)
			}
		}
	}
	if err := nc.Flush(); err != nil {
		return fmt.Errorf("register service %s with NATS: %w", s.Name, err)
	}
	if s.Served != nil {
		s.Served(func() error { return stopped(s.Name, served) })
	}
	if ready != nil {
		ready()
	}
	<-ctx.Done()
	return nil
}

// stopped returns an error when an instance has ended: by itself, because the
// server did not let it subscribe, or with the process.
func stopped(name string, instances []micro.Service) error {
	for _, svc := range instances {
		if svc.Stopped() {
			return fmt.Errorf("an instance of service %s has ended", name)
		}
	}
	return nil
}

// Answerable reports whether a reply may be sent to a subject: whether that is an
// inbox, whose first letter is an underscore wherever clients and servers make one.
// A request may name anything else as well, and the reply would arrive there with
// the rights of who sends it. JetStream delivers what is stored to any subject, and
// what it delivers has no reply, or one of its own.
func Answerable(reply string) bool { return strings.HasPrefix(reply, "_") }

// guarded leaves requests alone that nobody waits for the reply of in an inbox.
func (s Service) guarded(h micro.HandlerFunc) micro.Handler {
	return micro.HandlerFunc(func(req micro.Request) {
		if !Answerable(req.Reply()) {
			s.Log.Warn("a request was left alone: its reply belongs to no inbox", "subject", req.Subject(), "reply", req.Reply())
			return
		}
		h(req)
	})
}

func (s Service) handler(ctx context.Context, nc *nats.Conn, h Handler, working *sync.WaitGroup) micro.Handler {
	if s.Parallel == 0 {
		return s.guarded(func(req micro.Request) {
			s.sent(req, req.RespondJSON(s.answer(ctx, req, h), micro.WithHeaders(s.mine().Header())))
		})
	}
	room := make(chan struct{}, s.Parallel)
	return s.guarded(func(req micro.Request) {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		working.Go(func() {
			defer func() { <-room }()
			// A request of micro must not be answered after its handler.
			data, err := json.Marshal(s.answer(ctx, req, h))
			if err == nil {
				err = nc.PublishMsg(&nats.Msg{Subject: req.Reply(), Header: s.mine().Header(), Data: data})
			}
			s.sent(req, err)
		})
	})
}

func (s Service) answer(ctx context.Context, req micro.Request, h Handler) api.Reply {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.Time, requestTime))
	defer cancel()
	ctx = context.WithValue(ctx, subjectKey{}, req.Subject())
	if skew := s.skew(req); skew != nil {
		if s.Refused != nil {
			s.Refused(ctx, req.Data(), skew)
		}
		return api.Reply{Error: &api.Error{Code: skew.Code(), Message: skew.Error()}}
	}
	reply := s.reply(h(ctx, req.Data()))
	if reply.Error != nil {
		s.Log.Debug("a request failed", "subject", req.Subject(), "code", reply.Error.Code, "error", reply.Error.Message)
	}
	return reply
}

// mine is what the service says of itself.
func (s Service) mine() release.Release {
	if s.Release == (release.Release{}) {
		return release.This()
	}
	return s.Release
}

// skew judges who asks. Agents have to say what they are; a request of a person's
// own tool says nothing and is answered.
func (s Service) skew(req micro.Request) *release.Skew {
	asks, said := release.Of(req.Headers())
	if !said && !strings.HasPrefix(req.Subject(), api.SubjectsOfAgents) {
		return nil
	}
	return release.Check(asks, s.mine())
}

func (s Service) sent(req micro.Request, err error) {
	if err != nil {
		s.Log.Warn("a reply was not sent", "subject", req.Subject(), "error", err)
	}
}

// subjectKey is the key of a request's subject in its context.
type subjectKey struct{}

// Subject returns the subject of the request that a handler was called for,
// which tells what stood where the handler's own has a wildcard.
func Subject(ctx context.Context) string {
	subject, _ := ctx.Value(subjectKey{}).(string)
	return subject
}

func (s Service) reply(result any, err error) api.Reply {
	if err == nil {
		var data []byte
		if data, err = json.Marshal(result); err == nil {
			return api.Reply{OK: data}
		}
	}
	return api.Reply{Error: &api.Error{Code: s.code(err), Message: err.Error()}}
}

func (s Service) code(err error) string {
	switch {
	case errors.Is(err, ErrInvalid):
		return "invalid"
	case errors.Is(err, context.DeadlineExceeded):
		return "unavailable"
	}
	if code := s.Code(err); code != "" {
		return code
	}
	return "internal"
}

// Ask sends a request and reads the reply into out. An error of the server is
// an *api.Error; so is that of a server whose release does not suit this program.
func Ask(ctx context.Context, nc *nats.Conn, subject string, req, out any) error {
	data, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode request for %s: %w", subject, err)
	}
	msg, err := nc.RequestMsgWithContext(ctx, Request(subject, data))
	if err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	if err := CheckReply(msg); err != nil {
		return err
	}
	return readReply(subject, msg.Data, out)
}

func readReply(subject string, data []byte, out any) error {
	var reply api.Reply
	if err := json.Unmarshal(data, &reply); err != nil {
		return fmt.Errorf("read reply of %s: %w", subject, err)
	}
	if reply.Error != nil {
		return reply.Error
	}
	if err := json.Unmarshal(reply.OK, out); err != nil {
		return fmt.Errorf("read reply of %s: %w", subject, err)
	}
	return nil
}

// Request is a message that says which release asks.
func Request(subject string, data []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: release.This().Header(), Data: data}
}

// CheckReply returns an *api.Error when the reply says that it comes from a program
// that this one does not work together with. A reply that says nothing is taken.
func CheckReply(reply *nats.Msg) error {
	answers, said := release.Of(reply.Header)
	if !said {
		return nil
	}
	if skew := release.Check(release.This(), answers); skew != nil {
		return &api.Error{Code: skew.Code(), Message: skew.Error()}
	}
	return nil
}

// IsSkew reports whether a request was refused because the releases of who asked and
// who answered do not work together.
func IsSkew(err error) bool {
	var refused *api.Error
	return errors.As(err, &refused) && release.IsCode(refused.Code)
}
