package wadm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// StatusType is a closed set: one unknown value makes a whole list unreadable
// for wash.
type StatusType string

// The types, highest precedence first.
const (
	Failed      StatusType = "failed"
	Undeployed  StatusType = "undeployed"
	Waiting     StatusType = "waiting"
	Reconciling StatusType = "reconciling"
	Unhealthy   StatusType = "unhealthy"
	Deployed    StatusType = "deployed"
)

// precedence of the types: what is said of an application is the first that one
// of its scalers is.
var precedence = []StatusType{Failed, Undeployed, Waiting, Reconciling, Unhealthy, Deployed}

// MarshalText writes a type; the zero value is [Undeployed], as every reader has
// it. Anything else that is no type is an error.
func (t StatusType) MarshalText() ([]byte, error) {
	if t == "" {
		return []byte(Undeployed), nil
	}
	if !slices.Contains(precedence, t) {
		return nil, fmt.Errorf("%q is not a status type", string(t))
	}
	return []byte(t), nil
}

// UnmarshalText reads a type, old spellings included.
func (t *StatusType) UnmarshalText(text []byte) error {
	switch s := StatusType(text); s {
	case Failed, Undeployed, Waiting, Reconciling, Unhealthy, Deployed:
		*t = s
	case "compensating":
		*t = Reconciling
	case "ready":
		*t = Deployed
	default:
		return fmt.Errorf("%q is not a status type", string(s))
	}
	return nil
}

// Status is how an application is.
type Status struct {
	Status     StatusInfo             `json:"status"`
	Scalers    []ScalerStatus         `json:"scalers,omitempty"`
	Version    string                 `json:"version"`    // deprecated, always ""
	Components Array[json.RawMessage] `json:"components"` // deprecated, always []
	// Trimmed says that scalers were left out because the reply would have been
	// too large. An addition.
	Trimmed bool `json:"trimmed,omitempty"`
}

// StatusInfo is one status. The fields behind Message are additions.
type StatusInfo struct {
	Type        StatusType `json:"type"`
	Message     string     `json:"message,omitempty"`
	Reason      string     `json:"reason,omitempty"`      // the code of the wait or the failure
	Since       *time.Time `json:"since,omitempty"`       // of the wait or the failure
	Attempt     int        `json:"attempt,omitempty"`     // tries so far
	NextAttempt *time.Time `json:"nextAttempt,omitempty"` // of a scaler that backs off
}

// ScalerStatus is how one scaler is.
type ScalerStatus struct {
	ID     string     `json:"id"`
	Kind   string     `json:"kind"`
	Name   string     `json:"name"`
	Status StatusInfo `json:"status"`
}

// NewStatus is a status without additions.
func NewStatus(info StatusInfo, scalers []ScalerStatus) Status {
	return Status{Status: info, Scalers: scalers}
}

// NotDeployed is the status of what is not deployed, known or not.
func NotDeployed() Status { return NewStatus(StatusInfo{Type: Undeployed}, nil) }

// AllWaiting is the status of an application none of whose scalers can begin:
// all wait for the same reason.
func AllWaiting(scalers []ScalerStatus, code, reason string, since time.Time) Status {
	return All(scalers, StatusInfo{Type: Waiting, Message: reason, Reason: code, Since: &since})
}

// All is the status of an application all of whose scalers are the same.
func All(scalers []ScalerStatus, info StatusInfo) Status {
	rows := make([]ScalerStatus, len(scalers))
	for i, s := range scalers {
		s.Status = info
		rows[i] = s
	}
	return NewStatus(info, rows)
}

// Aggregate is the status of an application from those of its scalers: the type
// of highest precedence, and all that they say, in order and each thing once.
// The additions are of the scalers of that type: the first reason, since the
// earliest, the most attempts, the earliest next one.
func Aggregate(scalers []ScalerStatus) Status {
	if len(scalers) == 0 {
		return NotDeployed()
	}
	var info StatusInfo
	var messages []string
	rank := len(precedence)
	for _, s := range scalers {
		if m := strings.TrimSpace(s.Status.Message); m != "" && !slices.Contains(messages, m) {
			messages = append(messages, m)
		}
		if r := slices.Index(precedence, s.Status.Type); r >= 0 && r < rank {
			rank, info = r, StatusInfo{Type: s.Status.Type}
		}
		if s.Status.Type == info.Type {
			info.add(s.Status)
		}
	}
	info.Message = strings.Join(messages, ", ")
	return NewStatus(info, scalers)
}

// add takes over the additions of another status of the same type.
func (i *StatusInfo) add(o StatusInfo) {
	if i.Reason == "" {
		i.Reason = o.Reason
	}
	i.Since = earlier(i.Since, o.Since)
	i.Attempt = max(i.Attempt, o.Attempt)
	i.NextAttempt = earlier(i.NextAttempt, o.NextAttempt)
}

func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}

// Summarize is an application as a list shows it.
func Summarize(name, version string, description, deployed *string, status Status) Summary {
	legacy := status.Status.Type
	if legacy == Waiting {
		legacy = Undeployed
	}
	return Summary{
		Name: name, Version: version, Description: description, DeployedVersion: deployed,
		DetailedStatus: status, Status: legacy, StatusMessage: &status.Status.Message,
	}
}
