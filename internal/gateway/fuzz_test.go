package gateway

import (
	"strings"
	"testing"
)

const commit = "0123456789012345678901234567890123456789"

// FuzzRecord lets whoever may write to the bucket of bundles write anything as the
// record of a launch.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"mission":"m","launch":1,"gateway":"gw","base":"` + commit + `","bundles":[{"object":"bundle/m/1/c","phase":"p","commit":"` + commit + `","since":"` + commit + `","bytes":1}]}`))
	f.Add([]byte(`{"bundles":[{"commit":"` + commit + `\n"}]}`))
	f.Add([]byte(`{"bundles":[{"commit":"` + commit + `","phase":"../../x"}]}`))
	f.Add([]byte(`{"bundles":[null,{}],"launch":-1}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord(data)
		if err != nil {
			return
		}
		for _, b := range r.Bundles {
			if strings.Trim(b.Commit+b.Since+r.Base, "0123456789abcdef") != "" || strings.ContainsAny(b.Phase, "./ \n") {
				t.Fatalf("%q is taken as %+v", data, r)
			}
		}
	})
}
