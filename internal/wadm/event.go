package wadm

import (
	"encoding/json"
	"time"
)

// Lifecycle events: the last token of an event's subject.
const (
	EventPublished   = "manifest_published"   // data: the manifest
	EventUnpublished = "manifest_unpublished" // data: UnpublishedData
)

// Event is a lifecycle event: a CloudEvent 1.0 in structured JSON.
type Event struct {
	SpecVersion     string          `json:"specversion"` // 1.0
	ID              string          `json:"id"`          // the same when the event is told again
	Type            string          `json:"type"`
	Source          string          `json:"source"`          // wadm
	DataContentType string          `json:"datacontenttype"` // application/json
	Time            time.Time       `json:"time"`
	Data            json.RawMessage `json:"data"`
}

// UnpublishedData is the data of EventUnpublished.
type UnpublishedData struct {
	Name string `json:"name"`
}

// NewEvent is an event with the attributes that all of them share.
func NewEvent(id, event string, at time.Time, data json.RawMessage) Event {
	return Event{
		SpecVersion: "1.0", ID: id, Type: "com.wadm." + event, Source: "wadm",
		DataContentType: ContentJSON, Time: at.UTC(), Data: data,
	}
}
