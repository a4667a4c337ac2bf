package wadmapi

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// Any subject is a request that exists, with tokens that can be stored and
// published on, or is refused by an error that names it.
func FuzzSubject(f *testing.F) {
	for _, subject := range []string{
		"wadm.api.default.model.list", "wadm.api.default.model.get.shop", "ACME.wadm.api.default.model.put", "wadm.api.x",
		"wadm.api.default.model.get.a.b", "wadm.api.*.model.list", "wadm.api.\xff.model.list", "$JS.wadm.api.a.model.list",
		"wadm.apix.default.model.list", "wadm.api..model.list", "wadm.api.a.model.get.", "", ".", "wadm.api.a.model.get.a\x00",
	} {
		f.Add(subject, false)
		f.Add(subject, true)
	}
	f.Fuzz(func(t *testing.T, subject string, multitenant bool) {
		s, err := newScheme(" wadm.api. ", multitenant)
		require.NoError(t, err)
		got, err := s.parse(subject)
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "Invalid subject: "+subject) ||
				err.Error() == "Unsupported subject: "+subject, err)
			return
		}
		want := s.prefix + "." + got.key.Lattice + ".model." + string(got.op)
		if multitenant {
			want = got.key.Account + "." + want
		}
		if got.named {
			want += "." + got.key.Name
		}
		require.Equal(t, want, subject)
		require.Contains(t, handlers, route{got.op, got.named})
		for _, token := range []string{got.key.Account, got.key.Lattice, got.key.Name} {
			require.True(t, utf8.ValidString(token))
			require.LessOrEqual(t, len(token), 253)
			require.NotContains(t, token, "\x00")
		}
		require.NotContains(t, []string{"*", ">"}, got.key.Lattice)
		require.NotContains(t, []string{"*", ">", "$JS"}, got.key.Account)
	})
}

// A body of get, del or deploy is a version, none, or refused.
func FuzzVersionOf(f *testing.F) {
	for _, body := range []string{
		"", "{}", `{"version":null}`, `{"version":"v1"}`, `{"version":"v1","version":"v2"}`, `{"version":1}`, "[]", "null", " {} ", `{"Version":"v"}`,
		`{"x":{"version":"v"}}`, "{\"version\":\"\xff\"}", `{"version":"\ud800"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := request{Msg: &nats.Msg{Data: body}}
		version, err := r.version()
		if err != nil {
			require.Nil(t, version)
			require.Error(t, err)
			return
		}
		if version != nil {
			require.True(t, utf8.ValidString(*version))
			require.NotContains(t, *version, "\x00")
			require.Contains(t, string(body), "version")
		}
	})
}

// Whatever a message says, it is cut between characters and always fits.
func FuzzFailure(f *testing.F) {
	f.Add("there is no application called é", uint16(100))
	f.Add(strings.Repeat("\x00", 5000), uint16(1000))
	f.Add("\xff\xfe", uint16(0))
	f.Fuzz(func(t *testing.T, message string, limit uint16) {
		r := &request{limit: max(64, int(limit))}
		body := r.failure(message)
		require.LessOrEqual(t, len(body), r.limit)
		require.True(t, utf8.Valid(body))
	})
}
