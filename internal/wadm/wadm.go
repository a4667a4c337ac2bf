// Package wadm is the wire protocol of wadm 0.21: subjects, requests, replies,
// statuses and events, and a client. Servers and clients of wadm, wash among
// them, speak it; every type here has exactly wadm's keys, and additions are
// marked as such.
package wadm

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Names that are part of the protocol.
const (
	DefaultPrefix  = "wadm.api"
	DefaultLattice = "default"
	QueueGroup     = "wadm_server" // of the servers that share requests
	StatusStream   = "wadm_status" // JetStream stream of statuses
	EventStream    = "wadm_events" // JetStream stream of lifecycle events
)

// Operation is the third token of a request's subject, after the lattice and
// "model".
type Operation string

// The operations.
const (
	OpList     Operation = "list" // deprecated form of a get without a name: a bare array
	OpGet      Operation = "get"
	OpPut      Operation = "put"
	OpDelete   Operation = "del"
	OpVersions Operation = "versions"
	OpDeploy   Operation = "deploy"
	OpUndeploy Operation = "undeploy"
	OpStatus   Operation = "status"
	OpHistory  Operation = "history" // reserved
)

// Subject returns the subject of a request. name is empty for operations that
// take none.
func Subject(prefix, lattice string, op Operation, name string) string {
	parts := []string{prefix, lattice, "model", string(op)}
	if name != "" {
		parts = append(parts, name)
	}
	return strings.Join(parts, ".")
}

// StatusSubject returns the subject statuses of an application are published on.
// account is empty for a single tenant.
func StatusSubject(account, lattice, name string) string {
	return tenant(account) + "wadm.status." + lattice + "." + name
}

// EventSubject returns the subject of a lifecycle event. account is empty for a
// single tenant.
func EventSubject(account, lattice, event string) string {
	return tenant(account) + "wadm.evt." + lattice + "." + event
}

func tenant(account string) string {
	if account == "" {
		return ""
	}
	return account + "."
}

// Values of the field result.
const (
	ResultError        = "error"
	ResultSuccess      = "success"      // get, list, versions
	ResultNotFound     = "notfound"     // get, versions, deploy, undeploy
	ResultCreated      = "created"      // put
	ResultNewVersion   = "newversion"   // put
	ResultDeleted      = "deleted"      // del
	ResultNoop         = "noop"         // del
	ResultAcknowledged = "acknowledged" // deploy, undeploy
	ResultOK           = "ok"           // status
)

// VersionRequest is the body of get, del and deploy. A nil version means the
// newest, or for del all.
type VersionRequest struct {
	Version *string `json:"version,omitempty"`
}

// ListRequest is the body of list, and of get without a name. wadm reads no
// body there; both fields are additions.
type ListRequest struct {
	After string `json:"after,omitempty"` // only names behind this one
	Limit int    `json:"limit,omitempty"` // at most so many; 0: all that fit
}

// Array is a slice that is [] in JSON when it is nil: clients written in Rust
// read no null there.
type Array[T any] []T

// MarshalJSON writes the elements.
func (a Array[T]) MarshalJSON() ([]byte, error) {
	if a == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]T(a))
}

// Error is the reply to a request that failed, whatever it was.
type Error struct {
	Result  string `json:"result"` // error
	Message string `json:"message"`
}

// GetReply answers get with a name.
type GetReply struct {
	Result   string          `json:"result"` // error, success, notfound
	Message  string          `json:"message"`
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// ListReply answers get without a name. The last two fields are additions, there
// when applications were left out because the reply would have been too large.
type ListReply struct {
	Result  string         `json:"result"` // error, success
	Message string         `json:"message"`
	Models  Array[Summary] `json:"models"`
	Total   int            `json:"total,omitempty"`
	Next    string         `json:"next,omitempty"` // ListRequest.After of the next page
}

// Summary is an application in a list. All keys are always there.
type Summary struct {
	Name            string     `json:"name"`
	Version         string     `json:"version"` // the newest put, not the deployed one
	Description     *string    `json:"description"`
	DeployedVersion *string    `json:"deployed_version"`
	DetailedStatus  Status     `json:"detailed_status"`
	Status          StatusType `json:"status"`         // deprecated: the top type, waiting written as undeployed
	StatusMessage   *string    `json:"status_message"` // deprecated: the top message
}

// PutReply answers put. Warnings are an addition.
type PutReply struct {
	Result         string    `json:"result"` // error, created, newversion
	TotalVersions  int       `json:"total_versions"`
	CurrentVersion string    `json:"current_version"` // the one just stored
	Message        string    `json:"message"`
	Name           string    `json:"name"`
	Warnings       []Warning `json:"warnings,omitempty"`
}

// Warning is something about a document that does not keep it from being
// stored, or about a request that does not keep it from being done.
type Warning struct {
	Rule    string `json:"rule"`
	Path    string `json:"path,omitempty"`
	Line    int    `json:"line,omitempty"` // from 1
	Message string `json:"message"`
}

// VersionsReply answers versions. Total is an addition, there when versions were
// left out because the reply would have been too large.
type VersionsReply struct {
	Result   string             `json:"result"` // error, success, notfound
	Message  string             `json:"message"`
	Versions Array[VersionInfo] `json:"versions"` // in the order they were put
	Total    int                `json:"total,omitempty"`
}

// VersionInfo is one stored version.
type VersionInfo struct {
	Version  string `json:"version"`
	Deployed bool   `json:"deployed"`
}

// DeleteReply answers del. Warnings are an addition.
type DeleteReply struct {
	Result   string    `json:"result"` // error, deleted, noop
	Message  string    `json:"message"`
	Undeploy bool      `json:"undeploy"`
	Warnings []Warning `json:"warnings,omitempty"`
}

// DeployReply answers deploy and undeploy. Of an undeploy the version is always
// null. Warnings are an addition.
type DeployReply struct {
	Result   string    `json:"result"` // error, acknowledged, notfound
	Message  string    `json:"message"`
	Name     string    `json:"name"`
	Version  *string   `json:"version"`
	Warnings []Warning `json:"warnings,omitempty"`
}

// StatusReply answers status.
type StatusReply struct {
	Result  string  `json:"result"` // error, ok
	Message string  `json:"message"`
	Status  *Status `json:"status,omitempty"`
}

// Content types of a put, in the header ContentType. Without one the server
// finds out.
const (
	HeaderContentType = "Content-Type"
	ContentJSON       = "application/json"
	ContentYAML       = "application/yaml"
)

// Encode writes a value as the protocol does: compact, and without escapes that
// only HTML needs.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
