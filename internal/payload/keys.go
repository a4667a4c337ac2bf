package payload

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"tidewait/internal/privatefile"
)

// KeySize is how many bytes a key has: AES-256.
const KeySize = 32

// maxKeyFile is more than a key in base64 with line breaks needs.
const maxKeyFile = 256

// idPattern is what is plain text in a history, a log and a list.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Keys are the keys of one process, by id. The first one encrypts, all decrypt. The
// zero value has none.
type Keys struct {
	ids  []string // in the order in which they were given
	aead map[string]cipher.AEAD
}

// ReadKeys reads a key from each file: 32 bytes in base64, which may end in a line
// break. The name of the file is the key's id. A file that others may read or that
// the group may write, a second key with the same id and what is no key are errors.
// No error shows a key.
func ReadKeys(paths []string) (Keys, error) {
	keys := Keys{aead: map[string]cipher.AEAD{}}
	for _, path := range paths {
		if err := keys.read(path); err != nil {
			return Keys{}, fmt.Errorf("the key %s %w", path, err)
		}
	}
	return keys, nil
}

func (k *Keys) read(path string) error {
	id := filepath.Base(path)
	if !idPattern.MatchString(id) {
		return errors.New("has a name that is no id: want letters, digits, dots, - and _, at most 63")
	}
	if k.Has(id) {
		return fmt.Errorf("has the same name as another one: %s; a key's name is its id", id)
	}
	text, err := privatefile.Read(path, maxKeyFile)
	if err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != KeySize {
		return errors.New("is not 32 bytes in base64; make one with: openssl rand -base64 32")
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return fmt.Errorf("is of no use: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return fmt.Errorf("is of no use: %w", err)
	}
	k.ids, k.aead[id] = append(k.ids, id), aead
	return nil
}

// IDs are the ids of the keys; the first one's encrypts.
func (k Keys) IDs() []string { return slices.Clone(k.ids) }

// Has reports whether there is a key with this id.
func (k Keys) Has(id string) bool { return k.aead[id] != nil }

// String lists the ids, for people.
func (k Keys) String() string {
	if len(k.ids) == 0 {
		return "none"
	}
	return strings.Join(k.ids, ", ")
}
