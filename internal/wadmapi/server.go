// Package wadmapi answers the API of wadm 0.21 over NATS, from Postgres, and
// publishes the lifecycle events and statuses of applications. Clients of wadm,
// wash among them, speak to it unchanged.
//
// # Requests
//
// Servers share requests as one queue group. Each request is worked on by
// itself, so a slow one holds up nobody, and is answered exactly once, whatever
// it is: with its reply, or with an error object that says what was wrong. It
// has 8 s, in which a database that does not answer is asked again. A request
// without a reply subject is done and not answered. What is acknowledged is
// committed.
//
// # Sizes
//
// A reply is never larger than the NATS server takes, and never missing because
// it would be. A put that could not be told again, in a reply or an event, is
// refused. A list or a status that is too large becomes smaller, by the first of
// these that is enough:
//
//  1. the scalers of every status are left out, and its field trimmed is true;
//  2. the messages of statuses are cut to 100 bytes;
//  3. the list ends early: the reply to get without a name says so in message,
//     total and next; the bare array of list just ends, and the log says so.
//
// The reply to versions has the newest versions that fit, the deployed one, and
// total. Warnings that do not fit are counted in a last one. Anything else that
// is too large becomes an error object. Messages are cut to 4 KiB.
//
// # Additions
//
// The body of list, and of get without a name, may be a [wadm.ListRequest]. The
// header [wadm.HeaderActor] says who asks, and a client that is a program of
// Tidewait's says its release, for which it may be refused. Replies have the additional fields
// that package wadm marks.
package wadmapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"tidewait/config"
	"tidewait/internal/natsrpc"
	"tidewait/internal/release"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

// Server answers the API. All fields but Changed and Served must be set; Settings.APIPrefix
// may have dots and spaces around it.
type Server struct {
	Store    *store.Store
	NATS     *nats.Conn
	Settings config.Wadm
	Changed  func()                   // called after each commit that wrote to the outbox of applications; may be nil
	Served   func(check func() error) // given what tells whether requests still arrive; may be nil
	Log      *slog.Logger

	versions versionSource
}

const (
	// requestTime is all the time a request has from when it is taken: clients
	// give up after 10 s.
	requestTime = 8 * time.Second
	// maxWaiting bounds the requests that are taken and wait for their turn, each
	// at most requestTime. The rest waits in the subscription.
	maxWaiting = 1024
	// maxPendingBytes bounds what waits in the subscription. What is above it is
	// lost, and logged.
	maxPendingBytes = 512 << 20
)

// Serve answers until ctx ends, then answers what has arrived and returns. The
// servers of a queue group share the requests. ready, when not nil, is called
// once requests are answered.
func (s *Server) Serve(ctx context.Context, ready func()) error {
	subjects, err := newScheme(s.Settings.APIPrefix, s.Settings.Multitenant)
	if err != nil {
		return err
	}
	in := s.newIntake(ctx, subjects)
	defer in.close()
	sub, err := s.NATS.QueueSubscribe(subjects.pattern(), wadm.QueueGroup, in.take)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", subjects.pattern(), err)
	}
	ended := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(ended) })
	slow := sub.StatusChanged(nats.SubscriptionSlowConsumer)
	if err := errors.Join(sub.SetPendingLimits(-1, maxPendingBytes), s.NATS.Flush()); err != nil {
		return fmt.Errorf("subscribe to %s: %w", subjects.pattern(), err)
	}
	if s.Served != nil {
		s.Served(func() error {
			if !sub.IsValid() {
				return errClosed
			}
			return nil
		})
	}
	if ready != nil {
		ready()
	}
	for {
		select {
		case <-ctx.Done():
			return in.drain(sub, ended)
		case <-ended:
			in.running.Wait()
			return errClosed
		case _, open := <-slow:
			if !open {
				slow = nil
				continue
			}
			dropped, _ := sub.Dropped()
			s.Log.Error("requests of the wadm API were dropped: more arrive than can be held",
				"subject", sub.Subject, "dropped_in_all", dropped)
		}
	}
}

var errClosed = errors.New("the connection to NATS was closed: requests of the wadm API do not arrive any more")

// intake takes requests from the subscription.
type intake struct {
	server   *Server
	subjects scheme
	base     context.Context // of all requests; ends requestTime after Serve's
	close    context.CancelFunc
	taken    chan struct{} // a place for each request that was taken
	working  chan struct{} // and for each that is worked on
	running  sync.WaitGroup
}

func (s *Server) newIntake(ctx context.Context, subjects scheme) *intake {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	atOnce := max(1, s.Settings.Concurrency)
	return &intake{
		server: s, subjects: subjects, base: base, close: cancel,
		taken: make(chan struct{}, atOnce+maxWaiting), working: make(chan struct{}, atOnce),
	}
}

// take is called for one message after the other.
func (in *intake) take(msg *nats.Msg) {
	if !natsrpc.Answerable(msg.Reply) {
		in.server.Log.Warn("a request of the wadm API was left alone: its reply belongs to no inbox", "subject", msg.Subject, "reply", msg.Reply)
		return
	}
	in.taken <- struct{}{}
	ctx, cancel := context.WithTimeout(in.base, requestTime)
	in.running.Go(func() {
		defer func() { cancel(); <-in.taken }()
		reply := in.reply(ctx, msg)
		if err := msg.Respond(reply); err != nil {
			in.server.Log.Warn("a reply was not sent", "subject", msg.Subject, "bytes", len(reply), "error", err)
		}
	})
}

// reply is the answer to a message, whatever it is and whatever happens.
func (in *intake) reply(ctx context.Context, msg *nats.Msg) (reply []byte) {
	s := in.server
	r := &request{Msg: msg, limit: int(s.NATS.MaxPayload())}
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("a request of the wadm API crashed", "subject", msg.Subject, "panic", p, "stack", string(debug.Stack()))
			reply = r.failure("the request crashed inside the server (internal); its log says where")
		}
	}()
	var err error
	if r.target, err = in.subjects.parse(msg.Subject); err != nil {
		return r.failure(err.Error())
	}
	if skew := skewOf(msg); skew != nil {
		return r.failure(skew.Refusal())
	}
	select {
	case in.working <- struct{}{}:
		defer func() { <-in.working }()
	case <-ctx.Done():
		return r.failure("the server is busy (unavailable): it did not come to this request in time; ask again")
	}
	reply, err = handlers[route{r.op, r.named}](s, ctx, r)
	if err != nil {
		return r.failure(s.reason(r, err))
	}
	if len(reply) > r.limit {
		return r.failure(tooLarge("the reply", len(reply), r.limit))
	}
	return reply
}

// skewOf judges a client that says which release of Tidewait it is. wash and the
// clients of wadm do not say.
func skewOf(msg *nats.Msg) *release.Skew {
	asks, said := release.Of(msg.Header)
	if !said {
		return nil
	}
	return release.Check(asks, release.This())
}

// drain answers what has arrived, and returns once it is sent. What does not get
// its turn in requestTime is told so.
func (in *intake) drain(sub *nats.Subscription, ended <-chan struct{}) error {
	timer := time.AfterFunc(requestTime, in.close)
	defer timer.Stop()
	if err := sub.Drain(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
		return fmt.Errorf("stop taking requests of the wadm API: %w", err)
	}
	<-ended
	in.running.Wait()
	if err := in.server.NATS.FlushTimeout(requestTime); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("send the last replies of the wadm API: %w", err)
	}
	return nil
}
