package health_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/health"
)

// ask gets a page of a process of that health.
func ask(t *testing.T, h *health.Health, path, accept string) (code int, body string) {
	t.Helper()
	mux := http.NewServeMux()
	h.Register(mux)
	req := httptest.NewRequest(http.MethodGet, path, nil)
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, req)
	text, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	return w.Code, string(text)
}

func TestALoopThatDoesNotComeRoundIsNamed(t *testing.T) {
	h := health.New(50 * time.Millisecond)
	moves, hangs := h.Loop("moves", time.Hour), h.Loop("hangs", 0)
	moves.Beat()
	require.Eventually(t, func() bool { return !h.Live().OK }, 10*time.Second, time.Millisecond)
	code, body := ask(t, h, "/livez", "")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "[-]hangs failed: it has not come round for 0s; it should every 0s\n[+]moves ok\nlivez check failed\n", body)

	hangs.Beat()
	require.True(t, h.Live().OK)
	require.Eventually(t, func() bool { return !h.Live().OK }, 10*time.Second, time.Millisecond)
	hangs.End()
	code, body = ask(t, h, "/livez", "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "[+]moves ok\nlivez check passed\n", body)
}

func TestReadyNamesEachCheckInOrder(t *testing.T) {
	h := health.New(time.Minute)
	works := errors.New("it does not")
	h.Check("b", func(context.Context) error { return works })
	h.Check("a", func(context.Context) error { return nil })
	code, body := ask(t, h, "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "[+]a ok\n[-]b failed: it does not\nreadyz check failed\n", body)
	const report = "{\n  \"ok\": false,\n  \"checks\": [\n    {\n      \"name\": \"a\",\n      \"ok\": true\n    },\n" +
		"    {\n      \"name\": \"b\",\n      \"ok\": false,\n      \"error\": \"it does not\"\n    }\n  ]\n}\n"
	for path, accept := range map[string]string{"/readyz?verbose": "", "/readyz": "application/json"} {
		_, body = ask(t, h, path, accept)
		require.Equal(t, report, body)
	}
	works = nil
	code, body = ask(t, h, "/readyz", "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "[+]a ok\n[+]b ok\nreadyz check passed\n", body)
}

// TestACheckThatHangsFails: also one that does not look at its context, and
// without holding up the others.
func TestACheckThatHangsFails(t *testing.T) {
	h := health.New(time.Minute)
	ever := make(chan struct{})
	defer close(ever)
	h.Check("hangs", func(context.Context) error { <-ever; return nil })
	h.Check("answers", func(context.Context) error { return nil })
	require.Equal(t, health.Report{Checks: []health.Result{
		{Name: "answers", OK: true}, {Name: "hangs", Error: "no answer within 2s"},
	}}, h.Ready(t.Context()))
}

// TestAPartThatEndsIsNoConcern: what belongs to it fails the process while it is
// there, and not when it has ended as it was to.
func TestAPartThatEndsIsNoConcern(t *testing.T) {
	h := health.New(0)
	part := h.Part()
	part.Loop("of the part", 0)
	part.Check("of the part", func(context.Context) error { return errors.New("it does not") })
	h.Check("of all", func(context.Context) error { return nil })
	require.Eventually(t, func() bool { return !h.Live().OK }, 10*time.Second, time.Millisecond)
	require.False(t, h.Ready(t.Context()).OK)
	require.Len(t, h.Ages(), 1)
	h.Withdraw(part)
	require.Equal(t, health.Report{OK: true, Checks: []health.Result{}}, h.Live())
	require.Equal(t, health.Report{OK: true, Checks: []health.Result{{Name: "of all", OK: true}}}, h.Ready(t.Context()))
	require.Empty(t, h.Ages())
}

func TestNobodyWatches(t *testing.T) {
	var h *health.Health
	l := h.Loop("any", time.Second)
	l.Beat()
	l.End()
	h.Check("any", nil)
	require.Empty(t, h.Ages())
}
