package wadm

import (
	"errors"
	"testing"
)

// FuzzReply lets a server of the API say anything.
func FuzzReply(f *testing.F) {
	for _, text := range []string{
		`{"result":"success","message":"","status":{"status":{"type":"deployed"},"scalers":[],"version":"v1"}}`,
		`{"result":"error","message":"no"}`, `{"result":"notfound"}`, `{"result":"deployed","name":"a","version":"1","current_version":"1","total_versions":1}`,
		`{}`, `null`, `[]`, `{"result":1}`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		deploy, err := read[DeployReply](OpDeploy, "subject", data)
		var refusal *ReplyError
		if err == nil && (deploy.Result == ResultError || deploy.Result == ResultNotFound) {
			t.Fatalf("%q is a refusal that went through", data)
		}
		if errors.As(err, &refusal) && refusal.Result != ResultError && refusal.Result != ResultNotFound {
			t.Fatalf("%q is a refusal with the result %q", data, refusal.Result)
		}
		_, _ = read[StatusReply](OpStatus, "subject", data)
	})
}
