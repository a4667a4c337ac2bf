// Package payload encrypts what Tidewait gives to Temporal to keep: inputs and
// results of workflows and activities, signals, updates, summaries and details, and,
// where that is wanted, messages and stack traces of failures. What is not encrypted
// is read as it is, so that encryption can be turned on while workflows are open.
package payload

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
)

// What an encrypted payload has as metadata, in the words of Temporal's samples.
const (
	Encoding   = "binary/encrypted"  // of converter.MetadataEncoding
	MetadataID = "encryption-key-id" // which key
)

// A Codec encrypts payloads with AES-256-GCM, each whole with its metadata, under a
// random nonce. It is a converter.PayloadCodec, and safe for concurrent use.
type Codec struct {
	keys     Keys
	encrypts bool
}

// NewCodec returns a codec that decrypts with all keys. With encrypt it also
// encrypts, with the first of them; otherwise it leaves what it encodes as it is.
func NewCodec(keys Keys, encrypt bool) (*Codec, error) {
	if encrypt && len(keys.ids) == 0 {
		return nil, fmt.Errorf("payloads cannot be encrypted without a key")
	}
	return &Codec{keys: keys, encrypts: encrypt}, nil
}

// Keys are the keys of the codec.
func (c *Codec) Keys() Keys { return c.keys }

// EncryptsWith is the id of the key that encrypts; empty: nothing is encrypted.
func (c *Codec) EncryptsWith() string {
	if !c.encrypts {
		return ""
	}
	return c.keys.ids[0]
}

// An UnreadableError is the error of an encrypted payload that cannot be decrypted.
type UnreadableError struct {
	KeyID string // as the payload says
	Keys  Keys   // of this process
	cause error  // nil: the key is missing
}

func (e *UnreadableError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("the payload is encrypted with key %q, and this process has %s: add that key to temporal.encryption_keys", e.KeyID, e.Keys)
	}
	return fmt.Sprintf("the payload says it is encrypted with key %q, and does not open with it: %s; "+
		"it was changed, or the key of that name is another one here", e.KeyID, e.cause)
}

func (e *UnreadableError) Unwrap() error { return e.cause }

// Encode implements converter.PayloadCodec.
func (c *Codec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	if !c.encrypts {
		return payloads, nil
	}
	return each(payloads, c.encrypt)
}

// Decode implements converter.PayloadCodec. Payloads that are not encrypted are
// returned as they are. An error that wraps UnreadableError fails the task of a
// workflow, which the server then gives to another worker, never the workflow.
func (c *Codec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return each(payloads, c.decrypt)
}

func each(payloads []*commonpb.Payload, f func(*commonpb.Payload) (*commonpb.Payload, error)) ([]*commonpb.Payload, error) {
	changed := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		var err error
		if changed[i], err = f(p); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

func (c *Codec) encrypt(p *commonpb.Payload) (*commonpb.Payload, error) {
	plain, err := proto.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("put a payload into bytes: %w", err)
	}
	id := c.EncryptsWith()
	metadata := map[string][]byte{converter.MetadataEncoding: []byte(Encoding), MetadataID: []byte(id)}
	return &commonpb.Payload{Metadata: metadata, Data: c.keys.aead[id].Seal(nil, nil, plain, bound(metadata))}, nil
}

func (c *Codec) decrypt(p *commonpb.Payload) (*commonpb.Payload, error) {
	if string(p.GetMetadata()[converter.MetadataEncoding]) != Encoding {
		return p, nil
	}
	id := string(p.GetMetadata()[MetadataID])
	if !c.keys.Has(id) {
		return nil, c.unreadable(id, nil)
	}
	plain, err := c.keys.aead[id].Open(nil, nil, p.GetData(), bound(p.GetMetadata()))
	if err != nil {
		return nil, c.unreadable(id, err)
	}
	var whole commonpb.Payload
	if err := proto.Unmarshal(plain, &whole); err != nil {
		return nil, c.unreadable(id, err)
	}
	return &whole, nil
}

func (c *Codec) unreadable(id string, cause error) error {
	return converter.NewWorkflowTaskFailureError(&UnreadableError{KeyID: id, Keys: c.keys, cause: cause})
}

// bound is the data that is authenticated beside what is encrypted: all metadata,
// each part with its length, so that none of it can be changed, added or taken away.
func bound(metadata map[string][]byte) []byte {
	text := []byte("tidewait payload 1")
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		text = withLength(text, []byte(name))
		text = withLength(text, metadata[name])
	}
	return text
}

func withLength(text, part []byte) []byte {
	return append(binary.AppendUvarint(text, uint64(len(part))), part...)
}
