package lattice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// DefaultTimeout is how long a client waits for an answer.
const DefaultTimeout = 2 * time.Second

// Client speaks the control interface of one lattice. Its methods may be called
// by several goroutines, and send what they are told once.
//
// Their errors say what was asked of whom, and are ErrNobody, ErrTimeout,
// ErrCutOff, ErrUnreadable, an *InvalidName, a *Refused, or that of the context.
type Client struct {
	Conn    *nats.Conn
	Account string // first token of a multi-tenant lattice's subjects; otherwise empty
	Lattice string
	Timeout time.Duration // of one request; zero means DefaultTimeout
}

// Errors of requests that nobody answered.
var (
	// ErrNobody means that no host listens there.
	ErrNobody = errors.New("nobody listens there")
	// ErrTimeout means that no answer came in time. What was asked for may happen.
	ErrTimeout = errors.New("no answer came in time")
	// ErrCutOff means that there is no connection to NATS, and nothing was sent.
	ErrCutOff = errors.New("there is no connection to NATS")
)

// Refused is a host's no. Message are its own words.
type Refused struct{ Asked, Message string }

func (e *Refused) Error() string { return e.Asked + ": refused: " + e.Message }

// Validate returns an error when the client's names cannot be in a subject.
func (c Client) Validate() error {
	if c.Account != "" {
		if err := token("account", c.Account); err != nil {
			return err
		}
	}
	return token("lattice", c.Lattice)
}

// reply is what every answer looks like.
type reply struct {
	Success  *bool           `json:"success"`
	Message  string          `json:"message"`
	Response json.RawMessage `json:"response"`
}

func decodeReply(asked string, data []byte) (reply, error) {
	var r reply
	if err := json.Unmarshal(data, &r); err != nil {
		return reply{}, fmt.Errorf("%s: the answer: %w", asked, unreadable("%w", err))
	}
	if r.Success == nil {
		return reply{}, fmt.Errorf("%s: the answer: %w", asked, unreadable("it has no success"))
	}
	r.Message = clip(r.Message)
	if !*r.Success {
		return reply{}, &Refused{Asked: asked, Message: r.Message}
	}
	return r, nil
}

// decodeResponse reads the payload of an answer. found is false when it has none.
func decodeResponse[T any](asked string, r reply) (response T, found bool, err error) {
	if len(r.Response) == 0 || string(r.Response) == "null" {
		return response, false, nil
	}
	if err := json.Unmarshal(r.Response, &response); err != nil {
		return response, false, fmt.Errorf("%s: the answer: %w", asked, unreadable("%w", err))
	}
	return response, true, nil
}

// request sends one request and waits for one answer. asked says for errors
// what was asked of whom; a nil body is an empty one.
func (c Client) request(ctx context.Context, asked, suffix string, body any) (reply, error) {
	data, err := encode(asked, body)
	if err != nil {
		return reply{}, err
	}
	if err := c.ready(asked); err != nil {
		return reply{}, err
	}
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	msg, err := c.Conn.RequestWithContext(waiting, c.control(suffix), data)
	switch {
	case err == nil:
		return decodeReply(asked, msg.Data)
	case errors.Is(err, nats.ErrNoResponders):
		err = ErrNobody
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		err = fmt.Errorf("%w: waited %s", ErrTimeout, timeout)
	}
	return reply{}, fmt.Errorf("%s: %w", asked, err)
}

// maxReplies is how many hosts can answer one question.
const maxReplies = 10_000

// gather sends one request to all hosts and collects what they answer within a
// time. It ends early when nobody listens. No answer is no error.
func (c Client) gather(ctx context.Context, asked, suffix string, body any, window time.Duration, each func(reply, error)) error {
	data, err := encode(asked, body)
	if err != nil {
		return err
	}
	if err := c.ready(asked); err != nil {
		return err
	}
	inbox := c.Conn.NewRespInbox()
	answers, err := c.Conn.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("%s: %w", asked, err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := c.Conn.PublishRequest(c.control(suffix), inbox, data); err != nil {
		return fmt.Errorf("%s: %w", asked, err)
	}
	waiting, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	for range maxReplies {
		msg, err := answers.NextMsgWithContext(waiting)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", asked, ctx.Err())
		case errors.Is(err, context.DeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", asked, err)
		}
		each(decodeReply(asked, msg.Data))
	}
	return nil
}

// ready refuses to send while there is no connection: the client library would
// keep the request and send it long after it was given up.
func (c Client) ready(asked string) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%s: %w", asked, err)
	}
	if c.Conn == nil || !c.Conn.IsConnected() {
		return fmt.Errorf("%s: %w", asked, ErrCutOff)
	}
	return nil
}

func encode(asked string, body any) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", asked, err)
	}
	return data, nil
}
