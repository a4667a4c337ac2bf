package simhost

import (
	"crypto/rand"
	"time"

	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"
)

// cloudEvent is an event as hosts write it.
type cloudEvent struct {
	SpecVersion     string      `json:"specversion"`
	ID              string      `json:"id"`
	Type            string      `json:"type"`
	Source          string      `json:"source"`
	DataContentType string      `json:"datacontenttype"`
	Time            string      `json:"time"`
	Data            orderedData `json:"data"`
}

// orderedData is an event's data, with its keys in order.
type orderedData []byte

// MarshalJSON implements [encoding/json.Marshaler].
func (d orderedData) MarshalJSON() ([]byte, error) { return d, nil }

// publish publishes an event, unless a rule has something else in mind for it.
// about says which component, provider, link or config it is about.
func (h *Host) publish(name string, about subject, data any) {
	about.event, about.host = name, h
	e := h.l.effects(about)
	if e.Lose {
		return
	}
	body := e.Payload
	if body == nil {
		body = h.envelope(name, sorted(data))
	}
	h.after(e.Delay, func() {
		for range 1 + e.Copies {
			h.send(h.l.evt+name, body)
		}
	})
}

func (h *Host) envelope(name string, data []byte) []byte {
	now := h.l.opts.Clock.Now().UTC()
	return encode(cloudEvent{
		SpecVersion: "1.0", ID: eventID(now), Type: "com.wasmcloud.lattice." + name, Source: h.id,
		DataContentType: "application/json", Time: timestamp(now), Data: data,
	})
}

// send publishes what is lost when the server is away: hosts keep nothing for later.
func (h *Host) send(subject string, body []byte) {
	if h.l.nc.IsConnected() {
		_ = h.l.nc.Publish(subject, body) // lost, like everything while the server is away
	}
}

// eventID is a ULID that is written as a UUID.
func eventID(now time.Time) string {
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader)
	if err != nil { // a time beyond the year 10889
		return uuid.NewString()
	}
	return uuid.UUID(id).String()
}

// timestamp writes a time with as many digits as hosts do: none, 3, 6 or 9.
func timestamp(now time.Time) string {
	layout := "2006-01-02T15:04:05.000000000Z"
	switch {
	case now.Nanosecond() == 0:
		layout = "2006-01-02T15:04:05Z"
	case now.Nanosecond()%1_000_000 == 0:
		layout = "2006-01-02T15:04:05.000Z"
	case now.Nanosecond()%1_000 == 0:
		layout = "2006-01-02T15:04:05.000000Z"
	}
	return now.Format(layout)
}
