package natstest

import (
	"testing"

	"github.com/nats-io/nkeys"
)

// KeyPair makes keys, such as those of [nkeys.CreateUser].
func KeyPair(t testing.TB, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	pair, err := create()
	if err != nil {
		t.Fatalf("cannot make keys: %v", err)
	}
	return pair
}

// Public is the public one of a pair of keys.
func Public(t testing.TB, pair nkeys.KeyPair) string {
	t.Helper()
	key, err := pair.PublicKey()
	if err != nil {
		t.Fatalf("the keys have no public one: %v", err)
	}
	return key
}
