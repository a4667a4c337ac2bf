package codecserver_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"tidewait/internal/codecserver"
	"tidewait/internal/payload"
)

// FuzzRequest lets anybody on the machine ask anything.
func FuzzRequest(f *testing.F) {
	codec, err := payload.NewCodec(payload.Keys{}, false)
	if err != nil {
		f.Fatal(err)
	}
	h := codecserver.Handler(codecserver.Options{Codec: codec, Log: slog.New(slog.DiscardHandler)})
	f.Add(true, []byte(`{"payloads":[{"metadata":{"encoding":"YmluYXJ5L2VuY3J5cHRlZA==","encryption-key-id":"azI="},"data":"AAAA"}]}`))
	f.Add(false, []byte(`{"payloads":[null]}`))
	f.Add(true, []byte(`{}`))
	f.Add(true, []byte(`[`))
	f.Fuzz(func(t *testing.T, decode bool, body []byte) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, map[bool]string{true: "/decode", false: "/encode"}[decode], bytes.NewReader(body)))
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Fatalf("%q is answered with %d %s", body, w.Code, w.Body)
		}
	})
}
