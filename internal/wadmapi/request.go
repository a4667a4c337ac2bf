package wadmapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

// request is a message with what its subject says.
type request struct {
	*nats.Msg
	target
	limit int // the most bytes a reply may have
}

// version reads the body of get, del and deploy: nothing, or a JSON object. A
// version is what its exact key says, given once: deleting one version and
// deleting all are one slip apart, and so wadm's lists in place of objects are
// refused.
func (r *request) version() (*string, error) {
	if err := r.object(); err != nil || len(r.Data) == 0 {
		return nil, err
	}
	version, err := versionOf(r.Data)
	if err != nil {
		return nil, r.unreadable(err)
	}
	return version, nil
}

// object refuses a body that is neither nothing nor a JSON object.
func (r *request) object() error {
	switch body := bytes.TrimLeft(r.Data, " \t\r\n"); {
	case len(r.Data) == 0:
		return nil
	case !utf8.Valid(body):
		return r.unreadable(errors.New("it is not valid UTF-8"))
	case !json.Valid(body) || body[0] != '{':
		return r.unreadable(errors.New("it is not a JSON object"))
	}
	return nil
}

func (r *request) unreadable(why error) error {
	return refusef(`the body of %s cannot be read: %v; want nothing, or a JSON object such as {"version":"v1"}`, r.op, why)
}

// versionOf reads a JSON object.
func versionOf(object []byte) (version *string, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	given := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key != "version" {
			var ignored json.RawMessage
			if err := d.Decode(&ignored); err != nil {
				return nil, err
			}
			continue
		}
		if given {
			return nil, errors.New("it says version twice")
		}
		given = true
		if err := d.Decode(&version); err != nil {
			return nil, errors.New("version is neither text nor null")
		}
	}
	if version != nil && strings.ContainsRune(*version, 0) {
		return nil, errors.New("version has the character 0")
	}
	return version, nil
}

// page reads the body of list and of get without a name. wadm never looks at it,
// so what is not a [wadm.ListRequest] is as good as nothing.
func (r *request) page() wadm.ListRequest {
	var page wadm.ListRequest
	if json.Unmarshal(r.Data, &page) != nil || page.Limit < 0 || strings.ContainsRune(page.After, 0) {
		return wadm.ListRequest{}
	}
	return page
}

// actor is who makes the request, as the client says; empty when it does not.
func (r *request) actor() (string, error) {
	actor := r.Header.Get(wadm.HeaderActor)
	if err := checkText("header "+wadm.HeaderActor, actor); err != nil {
		return "", refusal(err.Error())
	}
	return actor, nil
}

// refusal is why a request is not done, in words for who made it.
type refusal string

func (r refusal) Error() string { return string(r) }

func refusef(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

func tooLarge(what string, bytes, limit int) string {
	return fmt.Sprintf("%s has %d bytes and NATS takes %d (too large): raise max_payload of the NATS server", what, bytes, limit)
}

// again is what to do when it is not known what became of a request.
func (r *request) again() string {
	switch r.op {
	case wadm.OpPut, wadm.OpDelete, wadm.OpDeploy, wadm.OpUndeploy:
		return "it may have been done or not: look before you ask again"
	}
	return "ask again"
}

// reason is what the reply says of an error. What the client can do nothing
// about stands in the log.
func (s *Server) reason(r *request, err error) string {
	var refused refusal
	level, reason := slog.LevelError, "the server failed (internal); its log says why"
	switch {
	case errors.As(err, &refused):
		level, reason = slog.LevelDebug, string(refused)
	case store.Unreachable(err):
		level, reason = slog.LevelWarn, "the storage is unreachable (unavailable); "+r.again()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		level, reason = slog.LevelWarn, "the storage did not answer in time (unavailable); "+r.again()
	case errors.Is(err, store.ErrConflict):
		level, reason = slog.LevelDebug, err.Error()+" (conflict)"
	case errors.Is(err, store.ErrText):
		level, reason = slog.LevelDebug, err.Error()
	}
	s.Log.Log(context.Background(), level, "a request of the wadm API failed", "subject", r.Subject, "reason", reason, "error", err)
	return reason
}

// repeatPause is between two tries of what the database did not answer.
const repeatPause = 200 * time.Millisecond

// patient repeats f while the database does not answer and there is time: after
// a restart of the database the first use of each old connection fails.
func patient[T any](ctx context.Context, f func() (T, error)) (T, error) {
	var before error
	for {
		result, err := f()
		if before != nil && errors.Is(err, context.DeadlineExceeded) {
			return result, before // time was up in the middle of another try
		}
		if err == nil || !store.Unreachable(err) {
			return result, err
		}
		before = err
		select {
		case <-time.After(repeatPause):
		case <-ctx.Done():
			return result, err
		}
	}
}
