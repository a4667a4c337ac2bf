// Package runlog publishes what the machines of a node print to JetStream, a
// message a line, while they print it. A log has bounds, in all and in a second,
// and what exceeds them is counted where it is missing. The lines of a log are
// stored in order and once, also when NATS was away meanwhile, as long as those
// that wait for it fit into the log's buffer.
package runlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidewait/internal/api"
)

// Publisher publishes the logs of a node's machines. It is safe for concurrent
// use.
type Publisher struct {
	js     jetstream.JetStream
	limits Limits
	log    *slog.Logger

	mu   sync.Mutex
	open map[string][]*Log // by run
}

const (
	// window is how many lines of a log are under way at once.
	window = 256
	// ackTime is how long the server may take to store a line.
	ackTime = 5 * time.Second
	// retryPause is between tries while NATS does not take lines.
	retryPause = 250 * time.Millisecond
	// drainTime is how long lines are tried after their machine has ended.
	drainTime = 2 * time.Minute
)

// New returns a publisher. The connection should be its own, and made with
// nats.ReconnectBufSize(-1): a flood then holds nothing else up, and what is
// published while NATS is away fails at once, instead of being stored behind
// lines that come later.
func New(nc *nats.Conn, l Limits, log *slog.Logger) (*Publisher, error) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(ackTime), jetstream.WithPublishAsyncMaxPending(1<<20))
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &Publisher{js: js, limits: l, log: log, open: map[string][]*Log{}}, nil
}

// Log is the log of one machine. Line and end are called by one goroutine at a
// time.
type Log struct {
	publisher *Publisher
	subject   string
	id        string // of this writer, in front of the numbers of its lines
	gate      *gate

	mu     sync.Mutex
	queue  []entry // not stored yet
	first  int     // number of the first of queue
	held   int64   // their cost
	lost   dropped // for want of room in the queue, since the last line that had some
	at     string  // position of the last line of queue, or before it
	spent  int64   // by then
	ended  bool
	until  time.Time     // when what is not stored is given up, once ended
	more   chan struct{} // there is something to look at
	stored chan struct{} // closed when all is over
}

// Open begins the log of a machine of a run on a subject.
func (p *Publisher) Open(run, subject string) *Log {
	l := &Log{
		publisher: p, subject: subject, id: uuid.NewString()[:8], gate: newGate(p.limits),
		more: make(chan struct{}, 1), stored: make(chan struct{}),
	}
	p.mu.Lock()
	p.open[run] = append(p.open[run], l)
	p.mu.Unlock()
	go l.publish()
	return l
}

// Resume goes on with the log of an earlier writer. It returns where the last line
// that it stored ends in what the machine has said, in that writer's words; empty:
// there is no such line. What the log may have is less by what it had by then, not
// by what was left out of it. It is called before the first line.
func (l *Log) Resume(ctx context.Context) (position string, err error) {
	last, err := l.lastStored(ctx)
	if err != nil || last == nil {
		return "", err
	}
	spent, _ := strconv.ParseInt(last.Header.Get(api.LogHeaderSpent), 10, 64) // 0 where a line says nothing
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate.resume(spent)
	return last.Header.Get(api.LogHeaderPosition), nil
}

// Line takes a line, which the caller may use again. It does not wait for NATS.
func (l *Log) Line(stream string, line []byte) { l.LineAt(stream, line, "") }

// LineAt is Line for a machine that another writer may go on with: position says
// where the line ends in what the machine has said.
func (l *Log) LineAt(stream string, line []byte, position string) {
	e := entry{at: time.Now().UTC(), stream: stream, text: append([]byte(nil), line...), position: position}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.push(l.gate.admit(e))
	}
}

// push queues lines as far as there is room. l.mu is held.
func (l *Log) push(entries []entry) {
	for _, e := range entries {
		if l.held+e.cost() > l.publisher.limits.Buffer {
			l.lost.add(e)
			continue
		}
		l.sayLost(e.at)
		l.append(e)
	}
}

func (l *Log) sayLost(at time.Time) {
	if l.lost.lines > 0 {
		l.append(system(at, "%s lost here: NATS did not take them in time", &l.lost))
		l.lost = dropped{}
	}
}

func (l *Log) append(e entry) {
	if e.position == "" {
		e.position = l.at // what the log says of itself changes nothing
	}
	e.spent = max(e.spent, l.spent)
	l.at, l.spent = e.position, e.spent
	l.queue = append(l.queue, e)
	l.held += e.cost()
	l.wake()
}

func (l *Log) wake() {
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// Close ends the logs of a run and waits until they are stored, or ctx ends. What
// is not stored then is tried for two minutes more.
func (p *Publisher) Close(ctx context.Context, run string) error {
	p.mu.Lock()
	logs := p.open[run]
	delete(p.open, run)
	p.mu.Unlock()
	for _, l := range logs {
		l.end()
	}
	for _, l := range logs {
		select {
		case <-l.stored:
		case <-ctx.Done():
			return fmt.Errorf("the last lines of the log of run %s are not stored yet: %w", run, context.Cause(ctx))
		}
	}
	return nil
}

func (l *Log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	at := time.Now().UTC()
	l.push(l.gate.close(at))
	l.sayLost(at)
	l.ended, l.until = true, at.Add(drainTime)
	l.wake()
}

// publish stores lines until the log has ended and all are stored.
func (l *Log) publish() {
	defer close(l.stored)
	for {
		batch, first, ended := l.next()
		switch {
		case len(batch) == 0 && ended:
			return
		case len(batch) == 0:
			<-l.more
			continue
		}
		n, err := l.store(batch, first)
		l.done(n)
		if err != nil && !l.recover() {
			l.publisher.log.Error("the end of a log is lost", "subject", l.subject, "error", err)
			return
		}
	}
}

// recover waits until it is known what of a log is stored, and takes that out. It
// reports false when the log ended too long ago, also when NATS answers and stores
// nothing.
func (l *Log) recover() bool {
	for {
		<-time.After(retryPause)
		_, first, _ := l.next()
		n, err := l.alreadyStored(first)
		if err == nil {
			l.done(n)
		}
		if n == 0 && l.isLate() {
			return false
		}
		if err == nil {
			return true
		}
	}
}

// isLate reports whether the log ended so long ago that the rest is given up.
func (l *Log) isLate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended && time.Now().After(l.until)
}

// next returns the lines to store next, without taking them out.
func (l *Log) next() (batch []entry, first int, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue[:min(window, len(l.queue))], l.first, l.ended
}

// done takes the first n lines out.
func (l *Log) done(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.queue[:n] {
		l.held -= e.cost()
	}
	l.queue = l.queue[n:]
	l.first += n
}

// store publishes lines and returns how many of the first are stored.
func (l *Log) store(batch []entry, first int) (int, error) {
	var futures []jetstream.PubAckFuture
	var failed error
	for i, e := range batch {
		future, err := l.publisher.js.PublishMsgAsync(l.message(e, first+i))
		if err != nil {
			failed = err
			break
		}
		futures = append(futures, future)
	}
	for i, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return i, err
		}
	}
	return len(futures), failed
}

func (l *Log) message(e entry, number int) *nats.Msg {
	msg := nats.NewMsg(l.subject)
	msg.Data = e.text
	msg.Header.Set(api.LogHeaderStream, e.stream)
	msg.Header.Set(api.LogHeaderTime, e.at.Format(time.RFC3339Nano))
	msg.Header.Set(api.LogHeaderLine, l.id+"-"+strconv.Itoa(number))
	if e.position != "" {
		msg.Header.Set(api.LogHeaderPosition, e.position)
		msg.Header.Set(api.LogHeaderSpent, strconv.FormatInt(e.spent, 10))
	}
	return msg
}

// alreadyStored returns how many of the lines from a number on are stored, of
// which the server's word did not arrive.
func (l *Log) alreadyStored(from int) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), ackTime)
	defer cancel()
	last, err := l.lastStored(ctx)
	if err != nil || last == nil {
		return 0, err
	}
	id, number, _ := strings.Cut(last.Header.Get(api.LogHeaderLine), "-")
	n, err := strconv.Atoi(number)
	if id != l.id || err != nil || n < from {
		return 0, nil
	}
	return n - from + 1, nil
}

// lastStored is the last line of the log, whoever wrote it; nil: there is none.
func (l *Log) lastStored(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	stream, err := l.publisher.js.Stream(ctx, api.LogStream)
	if err != nil {
		return nil, err
	}
	last, err := stream.GetLastMsgForSubject(ctx, l.subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil //nolint:nilnil // no line, no error
	}
	return last, err
}
