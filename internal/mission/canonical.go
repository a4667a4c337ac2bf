package mission

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// Canonical returns m as JSON that depends on nothing but its content: fields in
// a fixed order, map keys sorted, no white space. json.Unmarshal into a Mission
// gives m back.
func (m Mission) Canonical() []byte {
	text, err := json.Marshal(m)
	if err != nil {
		// Strings, integers, slices and maps of strings always marshal.
		panic("mission: " + err.Error())
	}
	return text
}

// Digest returns the SHA-256 of [Mission.Canonical] in hexadecimal.
func (m Mission) Digest() string {
	sum := sha256.Sum256(m.Canonical())
	return hex.EncodeToString(sum[:])
}

// Bounds returns the longest a run of a phase may hold a node and the longest a
// phase may wait for one, given the fleet's own bounds. A mission may lower both
// and raise neither: the error says which one it tried to raise.
func (s Spec) Bounds(fleetTurn, fleetMaxWait time.Duration) (turn, maxWait time.Duration, err error) {
	if turn, err = lowered("spec.turn", s.Turn, fleetTurn, "turn"); err != nil {
		return 0, 0, err
	}
	if maxWait, err = lowered("spec.maxWait", s.MaxWait, fleetMaxWait, "longest wait"); err != nil {
		return 0, 0, err
	}
	return turn, maxWait, nil
}

func lowered(key string, asked, limit time.Duration, name string) (time.Duration, error) {
	switch {
	case asked == 0:
		return limit, nil
	case asked > limit:
		return 0, fmt.Errorf("%s: %s is longer than the fleet's %s of %s; lower it or remove the key", key, asked, name, limit)
	default:
		return asked, nil
	}
}
