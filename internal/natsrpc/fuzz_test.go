package natsrpc

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"tidewait/internal/api"
)

// FuzzRequest lets anybody ask anything of the handlers of agents, gateways and the
// command line. What is taken means the same when it is said again.
func FuzzRequest(f *testing.F) {
	for kind, text := range []string{
		`{"node":"n1","bootId":"b","number":1,"total":{"CPUMilli":2000},"backends":{"process":{}},"runs":[{"id":"r1-1","step":"run","agents":[{"name":"a","exitCode":1}]}],"ended":["r0-1"]}`,
		`{"gateway":"gw","version":"1"}`, `{"run":"r1-1","epoch":2}`, `{"gateway":"gw","launches":[{"mission":"m","launch":1}]}`,
		`{"run":"r1-1","key":"AAAA","leftMs":1000}`, `{"mission":"m","launch":1,"secrets":[{"name":"A","from":"file:a"}]}`,
	} {
		f.Add(byte(kind), []byte(text))
		f.Add(byte(kind), []byte("null"))
		f.Add(byte(kind), []byte(`{"launches":[null],"runs":[{}],"key":"!"}`))
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		switch kind % 6 {
		case 0:
			twice[api.Heartbeat](t, data)
		case 1:
			twice[api.GatewayHeartbeat](t, data)
		case 2:
			twice[api.CommitRequest](t, data)
		case 3:
			twice[api.NeedsRequest](t, data)
		case 4:
			twice[api.SecretsRequest](t, data)
		case 5:
			twice[api.SealRequest](t, data)
		}
	})
}

// twice reads a request, says it again and reads that.
func twice[T any](t *testing.T, data []byte) {
	said, err := With(func(_ context.Context, req T) (any, error) { return json.Marshal(req) })(t.Context(), data)
	if err != nil {
		if !errors.Is(err, ErrInvalid) {
			t.Fatalf("%q is refused with %v", data, err)
		}
		return
	}
	again, err := With(func(_ context.Context, req T) (any, error) { return json.Marshal(req) })(t.Context(), said.([]byte))
	if err != nil || string(again.([]byte)) != string(said.([]byte)) {
		t.Fatalf("%s is read as %s, %v", said, again, err)
	}
}

// FuzzReply lets whoever answers say anything.
func FuzzReply(f *testing.F) {
	for _, text := range []string{`{"ok":{"state":"up","destroy":["r1-1"],"epoch":1}}`, `{"error":{"code":"stale","message":"no"}}`, `{}`, `null`, `{"ok":null}`, `[1]`, ``} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var heartbeat api.HeartbeatReply
		err := readReply("subject", data, &heartbeat)
		var refusal *api.Error
		if errors.As(err, &refusal) && refusal == nil {
			t.Fatalf("%q is an error that is none", data)
		}
		var mission api.MissionDetail
		if err := readReply("subject", data, &mission); err == nil {
			_, _ = json.Marshal(mission)
		}
	})
}
