package lattice

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"tidewait/internal/scaler"
)

// MaxEvent is the size in bytes of the largest event that is read.
const MaxEvent = 8 << 20

// maxID is the length in bytes of the longest id, name or version in an event.
const maxID = 1 << 10

// typePrefix begins the types of all events of a lattice.
const typePrefix = "com.wasmcloud.lattice."

// Errors of [DecodeEvent].
var (
	// ErrUnknownEvent is the error of an event of a type that has no meaning here.
	ErrUnknownEvent = errors.New("the event is of an unknown type")
	// ErrUnreadable is the error of an event, or of an answer, that cannot be read.
	ErrUnreadable = errors.New("it cannot be read")
)

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnreadable, fmt.Errorf(format, args...))
}

type envelope struct {
	ID     string          `json:"id"`
	Type   string          `json:"type"`
	Source string          `json:"source"`
	Time   string          `json:"time"`
	Data   json.RawMessage `json:"data"`
	Base64 []byte          `json:"data_base64"`
}

// DecodeEvent reads a CloudEvent in structured mode. Fields that are not known
// are passed over. Its errors are ErrUnknownEvent and ErrUnreadable. Nothing of
// the event keeps hold of message.
func DecodeEvent(message []byte) (Event, error) {
	if len(message) > MaxEvent {
		return Event{}, unreadable("the event has %d bytes, more than %d", len(message), MaxEvent)
	}
	var e envelope
	if err := json.Unmarshal(message, &e); err != nil {
		return Event{}, unreadable("the event is not a CloudEvent: %w", err)
	}
	name, ours := strings.CutPrefix(e.Type, typePrefix)
	decode := decoders[name]
	if !ours || decode == nil {
		return Event{}, fmt.Errorf("%w: %q", ErrUnknownEvent, clip(e.Type))
	}
	if err := token("the source", e.Source); err != nil {
		return Event{}, unreadable("%s: %w", name, err)
	}
	if e.ID == "" || len(e.ID) > maxID {
		return Event{}, unreadable("%s: the event's id is empty or longer than %d bytes", name, maxID)
	}
	at, err := time.Parse(time.RFC3339, e.Time)
	if err != nil && e.Time != "" {
		return Event{}, unreadable("%s: time: %w", name, err)
	}
	if e.Data == nil {
		e.Data = e.Base64
	}
	data, err := decode(e.Data)
	if err != nil {
		return Event{}, unreadable("%s: %w", name, err)
	}
	if beat, ok := data.(HostHeartbeat); ok {
		beat.Host = e.Source
		data = beat
	}
	return Event{ID: e.ID, Type: name, Host: e.Source, Time: at, Data: data}, nil
}

var decoders = map[string]func([]byte) (any, error){
	"host_started": read(func(w wireHost) (any, error) {
		return HostStarted{Name: w.Name, Labels: w.Labels, Version: w.Version}, nil
	}),
	"host_stopped": read(func(struct{}) (any, error) { return HostStopped{}, nil }),
	"host_heartbeat": read(func(w wireInventory) (any, error) {
		inv, err := w.inventory()
		return HostHeartbeat{inv}, err
	}),
	"labels_changed": read(func(w struct {
		Labels map[string]string `json:"labels"`
	},
	) (any, error) {
		if w.Labels == nil {
			return nil, errors.New("it has no labels")
		}
		return LabelsChanged{w.Labels}, nil
	}),
	"component_scaled": read(func(w wireScaled) (any, error) {
		e, err := w.entry()
		return ComponentScaled{e}, err
	}),
	"component_scale_failed": read(func(w wireScaled) (any, error) {
		e, err := w.entry()
		return ComponentScaleFailed{e, clip(w.Error)}, err
	}),
	"provider_started": read(func(w wireProviderEvent) (any, error) {
		id, err := w.id()
		return ProviderStarted{Entry{ID: id, Image: w.Image, Count: 1, Annotations: w.Annotations}}, err
	}),
	"provider_start_failed": read(func(w wireProviderEvent) (any, error) {
		id, err := w.id()
		return ProviderStartFailed{ID: id, Image: w.Ref, Error: clip(w.Error)}, err
	}),
	"provider_stopped": read(func(w wireProviderEvent) (any, error) {
		id, err := w.id()
		return ProviderStopped{ID: id, Reason: clip(w.Reason)}, err
	}),
	"health_check_passed": health(Healthy),
	"health_check_failed": health(Unhealthy),
	"health_check_status": health(HealthUnknown),
	"linkdef_set": read(func(w wireLink) (any, error) {
		l, err := w.link()
		return LinkSet{l}, err
	}),
	"linkdef_set_failed": read(func(w struct {
		wireLink
		Error string `json:"error"`
	},
	) (any, error) {
		l, err := w.link()
		return LinkSetFailed{l, clip(w.Error)}, err
	}),
	"linkdef_deleted": read(func(w wireLink) (any, error) {
		if w.Source == "" || w.Namespace == "" || w.Package == "" {
			return nil, errors.New("it has no source_id, wit_namespace or wit_package")
		}
		if w.Name == "" {
			w.Name = defaultLinkName
		}
		return LinkDeleted{scaler.Tuple{Source: w.Source, Target: w.Target, Name: w.Name, Namespace: w.Namespace, Package: w.Package}}, nil
	}),
	"config_set": read(func(w wireConfigEvent) (any, error) {
		name, err := w.name()
		return ConfigSet{name}, err
	}),
	"config_deleted": read(func(w wireConfigEvent) (any, error) {
		name, err := w.name()
		return ConfigDeleted{name}, err
	}),
}

// read turns a function of wire data into one of bytes.
func read[W any](convert func(W) (any, error)) func([]byte) (any, error) {
	return func(data []byte) (any, error) {
		var w *W
		if err := json.Unmarshal(data, &w); err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		if w == nil {
			return nil, errors.New("data: there are none")
		}
		v, err := convert(*w)
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		return v, nil
	}
}

type wireScaled struct {
	ID          *string           `json:"component_id"`
	Image       string            `json:"image_ref"`
	Count       *uint32           `json:"max_instances"`
	Annotations map[string]string `json:"annotations"`
	Error       string            `json:"error"`
}

func (w wireScaled) entry() (Entry, error) {
	if w.Count == nil {
		return Entry{}, errors.New("it has no max_instances")
	}
	id, err := identifier("component_id", w.ID)
	return Entry{ID: id, Image: w.Image, Count: int(*w.Count), Annotations: w.Annotations}, err
}

type wireProviderEvent struct {
	ID          *string           `json:"provider_id"`
	Image       string            `json:"image_ref"`
	Ref         string            `json:"provider_ref"`
	Annotations map[string]string `json:"annotations"`
	Error       string            `json:"error"`
	Reason      string            `json:"reason"`
}

func (w wireProviderEvent) id() (string, error) { return identifier("provider_id", w.ID) }

func health(h Health) func([]byte) (any, error) {
	return read(func(w wireProviderEvent) (any, error) {
		id, err := w.id()
		return ProviderHealth{id, h}, err
	})
}

type wireConfigEvent struct {
	Name *string `json:"config_name"`
}

func (w wireConfigEvent) name() (string, error) { return identifier("config_name", w.Name) }

func identifier(field string, id *string) (string, error) {
	switch {
	case id == nil:
		return "", fmt.Errorf("it has no %s", field)
	case len(*id) > maxID:
		return "", fmt.Errorf("its %s has %d bytes, more than %d", field, len(*id), maxID)
	}
	return *id, nil
}
