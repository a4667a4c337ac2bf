package wadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"tidewait/internal/release"
)

// HeaderActor is the header of a request that says who makes it. An addition:
// other servers ignore it.
const HeaderActor = "Tidewait-Actor"

// ErrNotFound is what the error of a request is when the server knows no such
// application or version.
var ErrNotFound = errors.New("no such application or version")

// ReplyError is a request that the server answered and did not do.
type ReplyError struct {
	Operation Operation
	Result    string // ResultError or ResultNotFound
	Message   string // the server's
}

func (e *ReplyError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the server answered %s with %s and did not say why", e.Operation, e.Result)
	}
	return e.Message
}

// Is makes a reply of "notfound" an ErrNotFound.
func (e *ReplyError) Is(target error) bool {
	return target == ErrNotFound && e.Result == ResultNotFound
}

// Client asks a server of the API over NATS. It may be used concurrently.
//
// Every method ends with its context. Its error is a *ReplyError when the server
// refused, wraps nats.ErrNoResponders when no server listens and
// context.DeadlineExceeded when none answered in time. Names, versions and
// documents are the server's to judge; only what could not be a subject is
// refused here.
type Client struct {
	Conn    *nats.Conn
	Prefix  string // empty: DefaultPrefix
	Lattice string // empty: DefaultLattice
	Actor   string // who asks; empty: it is not said
	// Release is what asks, a program of Tidewait's; zero: it is not said, and no
	// server refuses the request for it.
	Release release.Release
}

// Put stores one version of an application, a document in JSON.
func (c Client) Put(ctx context.Context, document []byte) (PutReply, error) {
	header := nats.Header{}
	header.Set(HeaderContentType, ContentJSON)
	return request[PutReply](ctx, c, OpPut, "", header, document)
}

// Get returns one version of an application in its normal form, JSON; nil is
// the newest.
func (c Client) Get(ctx context.Context, name string, version *string) (json.RawMessage, error) {
	reply, err := named[GetReply](ctx, c, OpGet, name, version)
	if err == nil && len(reply.Manifest) == 0 {
		err = fmt.Errorf("the server found application %s and did not send it", name)
	}
	return reply.Manifest, err
}

// List returns every application of the lattice, by name. It asks as often as
// it takes when they do not fit into one reply.
func (c Client) List(ctx context.Context) ([]Summary, error) {
	all := []Summary{}
	var after string
	for {
		page, err := c.page(ctx, after)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Models...)
		if page.Next == "" {
			return all, nil
		}
		if page.Next <= after {
			return nil, fmt.Errorf("the list of applications does not end: behind %q comes %q again", after, page.Next)
		}
		after = page.Next
	}
}

func (c Client) page(ctx context.Context, after string) (ListReply, error) {
	var body []byte
	if after != "" {
		var err error
		if body, err = json.Marshal(ListRequest{After: after}); err != nil {
			return ListReply{}, err
		}
	}
	return request[ListReply](ctx, c, OpGet, "", nil, body)
}

// Versions returns the versions of an application in the order they were put.
func (c Client) Versions(ctx context.Context, name string) (VersionsReply, error) {
	return named[VersionsReply](ctx, c, OpVersions, name, nil)
}

// Delete removes one version, or with nil all of them. What is not there is no
// error: the reply's result says noop.
func (c Client) Delete(ctx context.Context, name string, version *string) (DeleteReply, error) {
	return named[DeleteReply](ctx, c, OpDelete, name, version)
}

// Deploy makes one version the one that runs; nil is the newest. The reply says
// nothing about whether it runs yet.
func (c Client) Deploy(ctx context.Context, name string, version *string) (DeployReply, error) {
	return named[DeployReply](ctx, c, OpDeploy, name, version)
}

// Undeploy makes no version run.
func (c Client) Undeploy(ctx context.Context, name string) (DeployReply, error) {
	return named[DeployReply](ctx, c, OpUndeploy, name, nil)
}

// Status returns how an application is. Of an application that does not exist
// it is undeployed.
func (c Client) Status(ctx context.Context, name string) (StatusReply, error) {
	reply, err := named[StatusReply](ctx, c, OpStatus, name, nil)
	if err == nil && reply.Status == nil {
		err = fmt.Errorf("the server knows how application %s is and did not send it", name)
	}
	return reply, err
}

// named asks about one application. As older clients do, it sends no body when
// no version is meant.
func named[Reply any](ctx context.Context, c Client, op Operation, name string, version *string) (Reply, error) {
	var body []byte
	if err := checkToken("the name of an application", name); err != nil {
		var none Reply
		return none, err
	}
	if version != nil {
		var err error
		if body, err = json.Marshal(VersionRequest{Version: version}); err != nil {
			var none Reply
			return none, err
		}
	}
	return request[Reply](ctx, c, op, name, nil, body)
}

func request[Reply any](ctx context.Context, c Client, op Operation, name string, header nats.Header, body []byte) (Reply, error) {
	var reply Reply
	msg, err := c.message(op, name, header, body)
	if err != nil {
		return reply, err
	}
	answer, err := c.Conn.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return reply, fmt.Errorf("ask %s: %w", msg.Subject, err)
	}
	return read[Reply](op, msg.Subject, answer.Data)
}

// read reads a reply. One without a result is none: an empty body would read as one.
func read[Reply any](op Operation, subject string, data []byte) (reply Reply, err error) {
	var envelope struct {
		Result  string `json:"result"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(data, &envelope); err != nil || envelope.Result == "" {
		return reply, fmt.Errorf("the reply on %s is not one of wadm's API: %.100q", subject, data)
	}
	if envelope.Result == ResultError || envelope.Result == ResultNotFound {
		return reply, &ReplyError{Operation: op, Result: envelope.Result, Message: envelope.Message}
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		return reply, fmt.Errorf("read the reply on %s: %w", subject, err)
	}
	return reply, nil
}

// message builds a request and refuses what could not be a subject.
func (c Client) message(op Operation, name string, header nats.Header, body []byte) (*nats.Msg, error) {
	prefix, lattice := c.Prefix, c.Lattice
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if lattice == "" {
		lattice = DefaultLattice
	}
	for token := range strings.SplitSeq(prefix, ".") {
		if err := checkToken("a token of the prefix of requests", token); err != nil {
			return nil, err
		}
	}
	if err := checkToken("the name of a lattice", lattice); err != nil {
		return nil, err
	}
	if header == nil {
		header = nats.Header{}
	}
	if c.Release != (release.Release{}) {
		c.Release.Stamp(header)
	}
	if c.Actor != "" {
		header.Set(HeaderActor, oneLine(c.Actor))
	}
	return &nats.Msg{Subject: Subject(prefix, lattice, op, name), Header: header, Data: body}, nil
}

func checkToken(what, token string) error {
	if !IsToken(token) {
		return fmt.Errorf("%q cannot be %s: it must be one token of a NATS subject, without dots, spaces, * and >", token, what)
	}
	return nil
}

// IsToken reports whether text can be one token of a NATS subject.
func IsToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(".*>", r)
	})
}

// oneLine keeps a header's value from ending the header.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
