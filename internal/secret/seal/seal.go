// Package seal keeps secrets between the gateway that has them and the run that
// needs them: a run makes a [Key] in memory, the gateway seals to its public half
// with [Seal], and only [Key.Open] gets the values back. What carries the sealed
// values learns nothing but their names and lengths.
//
// It is HPKE (RFC 9180) in base mode, with X25519, HKDF-SHA256 and
// ChaCha20-Poly1305.
package seal

import (
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/binary"
	"errors"
	"fmt"
)

// Binding is what sealed secrets are for. They open for the same binding only.
type Binding struct {
	Mission string
	Launch  int
	Phase   string
	Run     string
	Node    string
}

// Secret is a value by the name of its environment variable.
type Secret struct {
	Name  string
	Value string
}

// Sealed are secrets on their way. It may be seen by anybody.
type Sealed struct {
	Encapsulated []byte `json:"encapsulated"` // HPKE's encapsulated key
	Secrets      []Box  `json:"secrets"`      // in the order they were sealed in
}

// Box is one sealed value.
type Box struct {
	Name string `json:"name"`
	Box  []byte `json:"box"`
}

// ErrWrong says that sealed secrets are not for this key, this binding or these
// names, or were changed on their way.
var ErrWrong = errors.New("the sealed secrets are not for this run, or were changed on their way")

func kem() hpke.KEM   { return hpke.DHKEM(ecdh.X25519()) }
func kdf() hpke.KDF   { return hpke.HKDFSHA256() }
func aead() hpke.AEAD { return hpke.ChaCha20Poly1305() }

// Key is the key pair of one run. It is safe for concurrent use.
type Key struct{ private hpke.PrivateKey }

// NewKey makes a key pair.
func NewKey() (*Key, error) {
	private, err := kem().GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("make a key for the secrets of a run: %w", err)
	}
	return &Key{private}, nil
}

// Public is the half that others may know.
func (k *Key) Public() []byte { return k.private.PublicKey().Bytes() }

// CheckPublic returns an error when public is no public half of a key.
func CheckPublic(public []byte) error {
	if _, err := kem().NewPublicKey(public); err != nil {
		return fmt.Errorf("%d bytes that are no public key: %w", len(public), err)
	}
	return nil
}

// Seal seals secrets for one run.
func Seal(public []byte, b Binding, secrets []Secret) (Sealed, error) {
	key, err := kem().NewPublicKey(public)
	if err != nil {
		return Sealed{}, fmt.Errorf("seal to %d bytes that are no public key: %w", len(public), err)
	}
	encapsulated, sender, err := hpke.NewSender(key, kdf(), aead(), b.info())
	if err != nil {
		return Sealed{}, fmt.Errorf("seal secrets: %w", err)
	}
	out := Sealed{Encapsulated: encapsulated, Secrets: []Box{}}
	for _, s := range secrets {
		box, err := sender.Seal([]byte(s.Name), []byte(s.Value))
		if err != nil {
			return Sealed{}, fmt.Errorf("seal secret %s: %w", s.Name, err)
		}
		out.Secrets = append(out.Secrets, Box{Name: s.Name, Box: box})
	}
	return out, nil
}

// Open returns the secrets of the given names, which must be those that were
// sealed, in their order. Otherwise, and for another key or binding, the error is
// [ErrWrong].
func (k *Key) Open(b Binding, names []string, s Sealed) ([]Secret, error) {
	if len(names) != len(s.Secrets) {
		return nil, ErrWrong
	}
	recipient, err := hpke.NewRecipient(s.Encapsulated, k.private, kdf(), aead(), b.info())
	if err != nil {
		return nil, ErrWrong
	}
	var out []Secret
	for i, name := range names {
		value, err := recipient.Open([]byte(name), s.Secrets[i].Box)
		if err != nil || name != s.Secrets[i].Name {
			return nil, ErrWrong
		}
		out = append(out, Secret{Name: name, Value: string(value)})
	}
	return out, nil
}

// info is the binding as bytes that no other binding has: each part with its
// length before it.
func (b Binding) info() []byte {
	info := []byte("tidewait secrets v1")
	for _, part := range []string{b.Mission, b.Phase, b.Run, b.Node} {
		info = binary.BigEndian.AppendUint32(info, uint32(len(part))) //nolint:gosec // names of at most a few hundred bytes
		info = append(info, part...)
	}
	return binary.BigEndian.AppendUint64(info, uint64(b.Launch)) //nolint:gosec // a count
}
