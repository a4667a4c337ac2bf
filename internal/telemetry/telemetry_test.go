package telemetry_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/health"
	"tidewait/internal/telemetry"
)

// start starts telemetry with these variables and no others.
func start(t *testing.T, address string, variables ...string) (*telemetry.Telemetry, error) {
	t.Helper()
	return telemetry.Start(t.Context(), telemetry.Options{
		Service: "test", Version: "1", Address: address, Health: health.New(time.Minute), Log: slog.New(slog.DiscardHandler),
		Env: func(name string) string {
			for _, v := range variables {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value
				}
			}
			return ""
		},
	})
}

func TestVariablesThatAskForWhatIsNotThere(t *testing.T) {
	for _, c := range []struct {
		variables []string
		want      string
	}{
		{
			[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_METRICS_EXPORTER=none"},
			`OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": want http/protobuf, which collectors take on port 4318`,
		},
		{
			[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=zipkin"},
			`OTEL_TRACES_EXPORTER is "zipkin": want otlp or none`,
		},
	} {
		_, err := start(t, "", c.variables...)
		require.EqualError(t, err, c.want)
	}
	for _, fine := range [][]string{
		{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, // nothing is sent
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_SDK_DISABLED=true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none"},
	} {
		tel, err := start(t, "", fine...)
		require.NoError(t, err)
		require.Empty(t, tel.URL(), "nothing is served that was not asked for")
		require.NoError(t, tel.Close(t.Context()))
	}
}

func TestOneListenerForAll(t *testing.T) {
	first, err := start(t, "127.0.0.1:0")
	require.NoError(t, err)
	for path, want := range map[string]string{"/metrics": "go_goroutines", "/livez": "livez check passed", "/readyz": "readyz check passed"} {
		res, err := http.Get(first.URL() + path) //nolint:noctx // of a server of this test
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.Contains(t, string(body), want)
	}
	_, err = start(t, strings.TrimPrefix(first.URL(), "http://"))
	require.ErrorContains(t, err, "serve metrics at telemetry.address: listen tcp 127.0.0.1:")
	require.NoError(t, first.Close(t.Context()))
	again, err := start(t, strings.TrimPrefix(first.URL(), "http://"))
	require.NoError(t, err, "the address is free again")
	require.NoError(t, again.Close(t.Context()))
}
