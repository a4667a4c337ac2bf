package wadmapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

// list answers get without a name.
func (s *Server) list(ctx context.Context, r *request) ([]byte, error) {
	l, err := s.listing(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.listed(r, l, func(models []byte, shown int) []byte {
		b := make([]byte, 0, len(models)+1024)
		b = appendText(append(b, `{"result":"success","message":`...), l.message(shown))
		b = append(append(append(b, `,"models":[`...), models...), ']')
		if l.goesOn(shown) {
			b = strconv.AppendInt(append(b, `,"total":`...), int64(l.total), 10)
			b = appendText(append(b, `,"next":`...), l.apps[shown-1].Name)
		}
		return append(b, '}')
	})
}

// listBare answers list: the same as an array, which cannot say that it is not
// all.
func (s *Server) listBare(ctx context.Context, r *request) ([]byte, error) {
	l, err := s.listing(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.listed(r, l, func(models []byte, _ int) []byte {
		b := make([]byte, 0, len(models)+2)
		return append(append(append(b, '['), models...), ']')
	})
}

func (s *Server) listed(r *request, l listing, wrap func(models []byte, shown int) []byte) ([]byte, error) {
	reply, shown, err := l.fit(r.limit, wrap)
	if err != nil {
		return nil, err
	}
	if shown < len(l.apps) {
		s.Log.Warn("a list of applications ends early: all of it would have been larger than max_payload of the NATS server",
			"subject", r.Subject, "listed", shown, "applications", l.total, "max_payload", r.limit)
	}
	return reply, nil
}

// listing is applications to list, by name.
type listing struct {
	apps  []store.ListedApplication
	more  bool // there are more than were asked for
	total int  // of the lattice
}

// minSummary is less than the bytes of any summary.
const minSummary = 150

func (s *Server) listing(ctx context.Context, r *request) (listing, error) {
	page := r.page()
	// One more than was asked for, or than can fit: then it is seen that there are
	// more.
	fetch := r.limit/minSummary + 1
	if page.Limit > 0 {
		fetch = min(fetch, page.Limit+1)
	}
	l, err := patient(ctx, func() (l listing, err error) {
		l.apps, l.total, err = s.Store.ListApplications(ctx, r.key.Account, r.key.Lattice, page.After, fetch)
		return l, err
	})
	if page.Limit > 0 && len(l.apps) > page.Limit {
		l.apps, l.more = l.apps[:page.Limit], true
	}
	return l, err
}

// goesOn reports whether something is behind the first so many.
func (l listing) goesOn(shown int) bool { return l.more || shown < len(l.apps) }

func (l listing) message(shown int) string {
	if l.goesOn(shown) {
		return fmt.Sprintf("%d of %s; those behind next are asked for with after", shown, count(l.total, "application"))
	}
	return count(shown, "application")
}

// detail is how much of each application a list shows.
type detail int

const (
	everything detail = iota
	withoutScalers
	shortMessages // and no scalers
)

// fit builds the reply with the most detail that is not too large, and says how
// many applications it has.
func (l listing) fit(most int, wrap func(models []byte, shown int) []byte) ([]byte, int, error) {
	for _, d := range []detail{everything, withoutScalers, shortMessages} {
		models, ends, err := l.models(most, d)
		if err != nil {
			return nil, 0, err
		}
		if len(ends) == len(l.apps) {
			if reply := wrap(models, len(l.apps)); len(reply) <= most {
				return reply, len(l.apps), nil
			}
		}
		if d != shortMessages {
			continue
		}
		for shown := len(ends) - 1; shown > 0; shown-- {
			if reply := wrap(models[:ends[shown-1]], shown); len(reply) <= most {
				return reply, shown, nil
			}
		}
	}
	return nil, 0, refusef("not even one application fits into a reply: NATS takes %d bytes (too large): raise max_payload of the NATS server", most)
}

// models are the summaries, separated by commas, and where each ends. It stops
// behind the one that makes them too large.
func (l listing) models(most int, d detail) (models []byte, ends []int, err error) {
	models, ends = make([]byte, 0, min(l.size(), most+most/8)), make([]int, 0, len(l.apps))
	for i, app := range l.apps {
		if i > 0 {
			models = append(models, ',')
		}
		if models, err = appendSummary(models, app, d); err != nil {
			return nil, nil, err
		}
		ends = append(ends, len(models))
		if len(models) > most {
			break
		}
	}
	return models, ends, nil
}

// size is about the bytes of all summaries.
func (l listing) size() int {
	const keys = 200
	size := 0
	for _, app := range l.apps {
		size += keys + len(app.Name) + len(app.Status) + len(app.StatusMessage)
	}
	return size
}

// appendSummary writes a [wadm.Summary] around the status as it is stored.
func appendSummary(b []byte, app store.ListedApplication, d detail) ([]byte, error) {
	status, message := app.Status, app.StatusMessage
	if d != everything {
		var err error
		if status, err = lessOf(app.Status, d); err != nil {
			return nil, fmt.Errorf("the stored status of %s: %w", app.Name, err)
		}
	}
	if d == shortMessages {
		message = cut(message, maxShortMessage)
	}
	legacy := app.StatusType
	if legacy == wadm.Waiting {
		legacy = wadm.Undeployed
	}
	b = appendText(append(b, `{"name":`...), app.Name)
	b = appendText(append(b, `,"version":`...), app.Version)
	b = appendOptional(append(b, `,"description":`...), app.Description)
	b = appendOptional(append(b, `,"deployed_version":`...), app.DeployedVersion)
	b = append(append(b, `,"detailed_status":`...), status...)
	b = appendText(append(b, `,"status":`...), string(legacy))
	b = appendText(append(b, `,"status_message":`...), message)
	return append(b, '}'), nil
}

// maxShortMessage is the most bytes of a status' message once it has to be cut.
const maxShortMessage = 100

// lessOf is a status without its scalers, and maybe with a shorter message. It
// reads no further than to the scalers, which may be most of it.
func lessOf(raw json.RawMessage, d detail) (json.RawMessage, error) {
	var less wadm.Status
	text := json.NewDecoder(bytes.NewReader(raw))
	if _, err := text.Token(); err != nil {
		return nil, err
	}
	for text.More() && !less.Trimmed {
		key, err := text.Token()
		if err != nil {
			return nil, err
		}
		var value any = new(json.RawMessage)
		switch key {
		case "status":
			value = &less.Status
		case "scalers", "trimmed": // neither is there unless it says something
			less.Trimmed = true
			continue
		}
		if err := text.Decode(value); err != nil {
			return nil, err
		}
	}
	if d == shortMessages {
		less.Status.Message = cut(less.Status.Message, maxShortMessage)
	}
	return encode(less)
}
