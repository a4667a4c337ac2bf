package seal_test

import (
	"errors"
	"testing"

	"tidewait/internal/secret/seal"
)

// FuzzOpen lets whoever carries sealed secrets change all of them: they open as they
// were sealed, or not at all.
func FuzzOpen(f *testing.F) {
	key, err := seal.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	binding := seal.Binding{Mission: "m", Launch: 1, Phase: "p", Run: "r1-1", Node: "n"}
	sealed, err := seal.Seal(key.Public(), binding, []seal.Secret{{Name: "A", Value: "value"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed.Encapsulated, "A", sealed.Secrets[0].Box)
	f.Add([]byte{}, "A", []byte{})
	f.Add(make([]byte, 32), "A", make([]byte, 16))
	f.Add(sealed.Encapsulated, "B", sealed.Secrets[0].Box)
	f.Fuzz(func(t *testing.T, encapsulated []byte, name string, box []byte) {
		got, err := key.Open(binding, []string{name}, seal.Sealed{Encapsulated: encapsulated, Secrets: []seal.Box{{Name: name, Box: box}}})
		switch {
		case err != nil && !errors.Is(err, seal.ErrWrong):
			t.Fatalf("it is refused with %v", err)
		case err == nil && (len(got) != 1 || got[0] != seal.Secret{Name: "A", Value: "value"}):
			t.Fatalf("what nobody sealed opened: %+v", got)
		}
	})
}

// FuzzPublic lets a node send anything as its key.
func FuzzPublic(f *testing.F) {
	key, err := seal.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(key.Public())
	f.Add([]byte{})
	f.Add(make([]byte, 32))
	f.Fuzz(func(t *testing.T, public []byte) {
		refused := seal.CheckPublic(public)
		_, err := seal.Seal(public, seal.Binding{}, []seal.Secret{{Name: "A", Value: "value"}})
		if refused != nil && err == nil {
			t.Fatalf("%x is refused with %v, and is sealed to", public, refused)
		}
	})
}
