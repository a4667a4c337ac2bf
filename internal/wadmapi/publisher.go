package wadmapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidewait/internal/ledger"
	"tidewait/internal/wadm"
)

// Publisher tells NATS news of applications: lifecycle events and statuses, for
// whoever subscribes, and in streams. It may be used concurrently, and several
// may be at work for one lattice.
type Publisher struct {
	JS jetstream.JetStream
	// Multitenant puts the account's token before every subject. Otherwise
	// ledger.DefaultAccount has none.
	Multitenant bool

	mu    sync.Mutex
	ready map[string]bool // whether the streams take an account's subjects
}

// Headers of a published status. They say which news it is, so that old news
// that comes late is told from new.
const (
	HeaderRevision  = "Tidewait-Revision"  // of what is deployed
	HeaderNews      = "Tidewait-News"      // number in the outbox
	HeaderCommitted = "Tidewait-Committed" // when, by the database's clock, in RFC 3339
)

// ErrTooLarge is in the error of news that this NATS server can never take.
var ErrTooLarge = errors.New("larger than max_payload of the NATS server")

// EnsureStreams makes the streams, or adopts those of a former wadm: what others
// set there stays. Publish does it for every account it meets.
func (p *Publisher) EnsureStreams(ctx context.Context) error {
	return p.ensure(ctx, p.token(ledger.DefaultAccount))
}

// Publish tells one piece of news and returns once its stream has it. Telling it
// again does no harm, and a status that is older than the one in the stream is
// not told.
func (p *Publisher) Publish(ctx context.Context, n ledger.News) error {
	account := p.token(n.Key.Account)
	err := p.ensure(ctx, account)
	if err == nil {
		err = p.publish(ctx, account, n)
	}
	if err != nil {
		p.forget(account) // a stream may be gone, or may have lost the account to a concurrent change
		return fmt.Errorf("tell NATS of %s (%s): %w", n.Key, n.Kind, err)
	}
	return nil
}

func (p *Publisher) publish(ctx context.Context, account string, n ledger.News) error {
	switch n.Kind {
	case ledger.NewsPublished:
		return p.event(ctx, account, n, wadm.EventPublished, n.Payload)
	case ledger.NewsUnpublished:
		data, err := json.Marshal(wadm.UnpublishedData{Name: n.Key.Name})
		if err != nil {
			return err
		}
		return p.event(ctx, account, n, wadm.EventUnpublished, data)
	case ledger.NewsStatus:
		return p.status(ctx, wadm.StatusSubject(account, n.Key.Lattice, n.Key.Name), n)
	}
	return fmt.Errorf("news of kind %q are not for NATS", n.Kind)
}

// token is what stands before an account's subjects.
func (p *Publisher) token(account string) string {
	if account == ledger.DefaultAccount && !p.Multitenant {
		return ""
	}
	return account
}

// eventSpace is the namespace of ids of events.
var eventSpace = uuid.MustParse("5b0f3f0e-6d0a-4e0e-9d5c-2f6f8a1b7c43")

// eventID is the same for the same news, and different for other news even when
// revisions begin anew in another database.
func eventID(n ledger.News) string {
	name := fmt.Sprintf("%s %s %d %s %d", n.Key.Account, n.Key.Lattice, n.Revision, n.Kind, n.At.UnixNano())
	return uuid.NewSHA1(eventSpace, []byte(name)).String()
}

func (p *Publisher) event(ctx context.Context, account string, n ledger.News, event string, data json.RawMessage) error {
	id := eventID(n)
	body, err := encode(wadm.NewEvent(id, event, n.At, data))
	if err != nil {
		return err
	}
	return p.send(ctx, nats.NewMsg(wadm.EventSubject(account, n.Key.Lattice, event)), body, jetstream.WithMsgID(id))
}

// maxOutruns is how often a status is held against what others published in
// between.
const maxOutruns = 10

func (p *Publisher) status(ctx context.Context, subject string, n ledger.News) error {
	body, err := p.fittingStatus(n.Payload)
	if err != nil {
		return err
	}
	for range maxOutruns {
		last, err := p.last(ctx, subject)
		if err != nil {
			return err
		}
		if last.newerThan(n) || sameJSON(last.body, body) {
			return nil
		}
		msg := nats.NewMsg(subject)
		msg.Header.Set(HeaderRevision, strconv.FormatInt(n.Revision, 10))
		msg.Header.Set(HeaderNews, strconv.FormatInt(n.ID, 10))
		msg.Header.Set(HeaderCommitted, n.At.UTC().Format(time.RFC3339Nano))
		if err := p.send(ctx, msg, body, jetstream.WithExpectLastSequencePerSubject(last.sequence)); !outrun(err) {
			return err
		}
	}
	return fmt.Errorf("others published on %s in between, %d times", subject, maxOutruns)
}

// outrun reports whether somebody published on the subject after it was looked
// at.
func outrun(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// fittingStatus is a status with as much detail as a message can have.
func (p *Publisher) fittingStatus(status json.RawMessage) ([]byte, error) {
	body := []byte(status)
	for _, d := range []detail{withoutScalers, shortMessages} {
		if len(body) <= p.limit() {
			break
		}
		var err error
		if body, err = lessOf(status, d); err != nil {
			return nil, fmt.Errorf("a stored status: %w", err)
		}
	}
	return body, nil
}

// headerRoom is what headers and subject may take of a message.
const headerRoom = 2048

func (p *Publisher) limit() int { return int(p.JS.Conn().MaxPayload()) - headerRoom }

func (p *Publisher) send(ctx context.Context, msg *nats.Msg, body []byte, opt jetstream.PublishOpt) error {
	if len(body) > p.limit() {
		return fmt.Errorf("%d bytes for %s: %w", len(body), msg.Subject, ErrTooLarge)
	}
	msg.Data = body
	_, err := p.JS.PublishMsg(ctx, msg, opt)
	return err
}

// published is the last message of a subject; zero when there is none.
type published struct {
	sequence  uint64
	body      []byte
	revision  int64
	news      int64
	committed time.Time
}

// last asks the stream's leader: a follower might not have the last one yet.
func (p *Publisher) last(ctx context.Context, subject string) (published, error) {
	leader, err := p.JS.Conn().JetStream(nats.APIPrefix(p.JS.Options().APIPrefix))
	if err != nil {
		return published{}, err
	}
	msg, err := leader.GetLastMsg(wadm.StatusStream, subject, nats.Context(ctx))
	if errors.Is(err, nats.ErrMsgNotFound) {
		return published{}, nil
	}
	if err != nil {
		return published{}, fmt.Errorf("read the last message on %s: %w", subject, err)
	}
	last := published{sequence: msg.Sequence, body: msg.Data}
	// A former wadm's messages have no headers: whatever is told now is newer.
	last.revision, _ = strconv.ParseInt(msg.Header.Get(HeaderRevision), 10, 64)
	last.news, _ = strconv.ParseInt(msg.Header.Get(HeaderNews), 10, 64)
	last.committed, _ = time.Parse(time.RFC3339Nano, msg.Header.Get(HeaderCommitted))
	return last, nil
}

// otherLife is how much earlier something newer cannot have been committed.
const otherLife = time.Minute

// newerThan reports whether the stream has what came after the news. Revisions
// grow, unless the database was restored or made anew: then the stream has
// greater ones, of long ago.
func (l published) newerThan(n ledger.News) bool {
	if l.committed.Before(n.At.Add(-otherLife)) {
		return false
	}
	return l.revision > n.Revision || l.revision == n.Revision && l.news > n.ID
}

// sameJSON reports whether two texts are the same JSON value.
func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
