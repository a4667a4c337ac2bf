package seal_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/secret/seal"
)

var binding = seal.Binding{Mission: "nightly", Launch: 3, Phase: "survey", Run: "r5-1", Node: "n1"}

func newKey(t require.TestingT) *seal.Key {
	k, err := seal.NewKey()
	require.NoError(t, err)
	return k
}

// TestWhatIsSealedOpens goes over JSON, as over the wire.
func TestWhatIsSealedOpens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := seal.Binding{
			Mission: rapid.String().Draw(t, "mission"), Launch: rapid.IntRange(0, 1<<40).Draw(t, "launch"),
			Phase: rapid.String().Draw(t, "phase"), Run: rapid.String().Draw(t, "run"), Node: rapid.String().Draw(t, "node"),
		}
		var want []seal.Secret
		var names []string
		for _, name := range rapid.SliceOfN(rapid.String(), 0, 5).Draw(t, "names") {
			value := string(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value"))
			want, names = append(want, seal.Secret{Name: name, Value: value}), append(names, name)
		}
		key := newKey(t)
		sealed, err := seal.Seal(key.Public(), b, want)
		require.NoError(t, err)

		got, err := key.Open(b, names, sealed)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestTheWireHasNoValue(t *testing.T) {
	key := newKey(t)
	secrets := []seal.Secret{{Name: "API_TOKEN", Value: "correct horse battery staple"}, {Name: "EMPTY", Value: ""}}
	sealed, err := seal.Seal(key.Public(), binding, secrets)
	require.NoError(t, err)
	wire, err := json.Marshal(sealed)
	require.NoError(t, err)
	require.Contains(t, string(wire), "API_TOKEN")
	require.NotContains(t, string(wire), "horse")
	require.False(t, bytes.Contains(sealed.Secrets[0].Box, []byte("horse")))

	var again seal.Sealed
	require.NoError(t, json.Unmarshal(wire, &again))
	got, err := key.Open(binding, []string{"API_TOKEN", "EMPTY"}, again)
	require.NoError(t, err)
	require.Equal(t, secrets, got)
}

// TestNothingElseOpens changes one thing at a time.
func TestNothingElseOpens(t *testing.T) {
	key := newKey(t)
	names := []string{"A", "B"}
	sealed, err := seal.Seal(key.Public(), binding, []seal.Secret{{Name: "A", Value: "first value"}, {Name: "B", Value: "second value"}})
	require.NoError(t, err)
	_, err = key.Open(binding, names, sealed)
	require.NoError(t, err, "the control: unchanged, it opens")

	changed := func(change func(*seal.Sealed)) seal.Sealed {
		s := seal.Sealed{Encapsulated: bytes.Clone(sealed.Encapsulated)}
		for _, b := range sealed.Secrets {
			s.Secrets = append(s.Secrets, seal.Box{Name: b.Name, Box: bytes.Clone(b.Box)})
		}
		change(&s)
		return s
	}
	bound := func(change func(*seal.Binding)) seal.Binding {
		b := binding
		change(&b)
		return b
	}
	for name, c := range map[string]struct {
		key    *seal.Key
		bound  seal.Binding
		names  []string
		sealed seal.Sealed
	}{
		"another run's key":  {newKey(t), binding, names, sealed},
		"another mission":    {key, bound(func(b *seal.Binding) { b.Mission = "nightlz" }), names, sealed},
		"another launch":     {key, bound(func(b *seal.Binding) { b.Launch = 4 }), names, sealed},
		"another phase":      {key, bound(func(b *seal.Binding) { b.Phase = "review" }), names, sealed},
		"another run":        {key, bound(func(b *seal.Binding) { b.Run = "r5-2" }), names, sealed},
		"another node":       {key, bound(func(b *seal.Binding) { b.Node = "n2" }), names, sealed},
		"parts that moved":   {key, bound(func(b *seal.Binding) { b.Mission, b.Phase = "nightlys", "urvey" }), names, sealed},
		"another name":       {key, binding, []string{"A", "C"}, sealed},
		"names exchanged":    {key, binding, []string{"B", "A"}, sealed},
		"a name too many":    {key, binding, []string{"A", "B", "C"}, sealed},
		"a name too few":     {key, binding, []string{"A"}, sealed},
		"a renamed box":      {key, binding, []string{"A", "C"}, changed(func(s *seal.Sealed) { s.Secrets[1].Name = "C" })},
		"a wrong label":      {key, binding, names, changed(func(s *seal.Sealed) { s.Secrets[1].Name = "C" })},
		"exchanged boxes":    {key, binding, []string{"B", "A"}, changed(func(s *seal.Sealed) { slices.Reverse(s.Secrets) })},
		"exchanged contents": {key, binding, names, changed(func(s *seal.Sealed) { s.Secrets[0].Box, s.Secrets[1].Box = s.Secrets[1].Box, s.Secrets[0].Box })},
		"a changed box":      {key, binding, names, changed(func(s *seal.Sealed) { s.Secrets[1].Box[0] ^= 1 })},
		"a box cut short":    {key, binding, names, changed(func(s *seal.Sealed) { s.Secrets[1].Box = s.Secrets[1].Box[:5] })},
		"a box left out":     {key, binding, []string{"B"}, changed(func(s *seal.Sealed) { s.Secrets = s.Secrets[1:] })},
		"a changed key":      {key, binding, names, changed(func(s *seal.Sealed) { s.Encapsulated[0] ^= 1 })},
		"no key":             {key, binding, names, changed(func(s *seal.Sealed) { s.Encapsulated = nil })},
		"nothing":            {key, binding, names, seal.Sealed{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.key.Open(c.bound, c.names, c.sealed)
			require.ErrorIs(t, err, seal.ErrWrong)
			require.Nil(t, got)
		})
	}
}

func TestBytesThatAreNoKey(t *testing.T) {
	for _, public := range [][]byte{nil, {1}, make([]byte, 31), make([]byte, 33)} {
		require.Error(t, seal.CheckPublic(public))
		_, err := seal.Seal(public, binding, nil)
		require.Error(t, err)
	}
	require.NoError(t, seal.CheckPublic(newKey(t).Public()))
	// The point of order one, which would make the secret shared with everybody.
	_, err := seal.Seal(make([]byte, 32), binding, nil)
	require.Error(t, err)
}

func TestKeysDiffer(t *testing.T) {
	one, other := newKey(t), newKey(t)
	require.NotEqual(t, one.Public(), other.Public())
}
