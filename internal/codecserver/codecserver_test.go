package codecserver_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"tidewait/internal/codecserver"
	"tidewait/internal/payload"
)

const ui = "http://127.0.0.1:8233"

func serve(t *testing.T, token string) (url string, codec *payload.Codec) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k1")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("A", 43)+"="), 0o600))
	keys, err := payload.ReadKeys([]string{path})
	require.NoError(t, err)
	codec, err = payload.NewCodec(keys, true)
	require.NoError(t, err)
	server := httptest.NewServer(codecserver.Handler(codecserver.Options{
		Codec: codec, Origins: []string{ui}, Token: token, Log: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(server.Close)
	return server.URL, codec
}

type answer struct {
	code   int
	body   string
	header http.Header
}

func ask(t *testing.T, method, url, body string, header map[string]string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return answer{res.StatusCode, string(text), res.Header}
}

func TestRoundTripThroughTheSDKsOwnClient(t *testing.T) {
	url, codec := serve(t, "")
	remote := converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{Endpoint: url})
	in := []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(`"make survey"`)}}
	secret, err := codec.Encode(in)
	require.NoError(t, err)
	out, err := remote.Decode(secret)
	require.NoError(t, err)
	require.Equal(t, `"make survey"`, string(out[0].Data))

	secret, err = remote.Encode(in)
	require.NoError(t, err)
	require.Equal(t, "binary/encrypted", string(secret[0].Metadata["encoding"]))
	out, err = codec.Decode(secret)
	require.NoError(t, err)
	require.Equal(t, `"make survey"`, string(out[0].Data))
}

func TestPagesOfOtherOriginsAreRefused(t *testing.T) {
	url, _ := serve(t, "")
	for _, origin := range []string{"http://127.0.0.1:8234", "https://127.0.0.1:8233", "http://evil.example.com", "null", ui + ".evil.example.com"} {
		for _, method := range []string{http.MethodOptions, http.MethodPost} {
			a := ask(t, method, url+"/decode", `{"payloads":[]}`, map[string]string{"Origin": origin, "Content-Type": "text/plain"})
			require.Equal(t, http.StatusForbidden, a.code, "%s from %s", method, origin)
			require.Equal(t, "pages of this origin may not ask: codec.origins does not name it\n", a.body)
			require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
		}
	}
}

func TestTheWebUIMayAsk(t *testing.T) {
	url, _ := serve(t, "")
	a := ask(t, http.MethodOptions, url+"/decode", "", map[string]string{
		"Origin": ui, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,x-namespace",
	})
	require.Equal(t, http.StatusNoContent, a.code)
	require.Equal(t, ui, a.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "Authorization, Content-Type, X-Namespace", a.header.Get("Access-Control-Allow-Headers"))
	require.Equal(t, "POST, OPTIONS", a.header.Get("Access-Control-Allow-Methods"))

	a = ask(t, http.MethodPost, url+"/decode", `{"payloads":[{"metadata":{"encoding":"anNvbi9wbGFpbg=="},"data":"MQ=="}]}`, map[string]string{"Origin": ui})
	require.Equal(t, http.StatusOK, a.code, a.body)
	require.Equal(t, ui, a.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.JSONEq(t, `{"payloads":[{"metadata":{"encoding":"anNvbi9wbGFpbg=="},"data":"MQ=="}]}`, a.body)
}

func TestTheTokenIsAsked(t *testing.T) {
	url, _ := serve(t, "sesame")
	for authorization, code := range map[string]int{
		"": 401, "Bearer": 401, "Bearer ": 401, "Bearer sesam": 401, "Bearer sesame2": 401, "Basic sesame": 401, "sesame": 401,
		"Bearer sesame": 200, "bearer sesame": 200,
	} {
		a := ask(t, http.MethodPost, url+"/decode", `{}`, map[string]string{"Authorization": authorization})
		require.Equal(t, code, a.code, "%q: %s", authorization, a.body)
	}
	a := ask(t, http.MethodOptions, url+"/decode", "", map[string]string{"Origin": ui})
	require.Equal(t, http.StatusNoContent, a.code, "a browser asks whether it may send the token")
}

func TestBadRequests(t *testing.T) {
	url, _ := serve(t, "")
	for _, c := range []struct {
		method, path, body string
		code               int
		says               string
	}{
		{"GET", "/decode", "", 404, "404 page not found\n"},
		{"POST", "/", "{}", 404, "404 page not found\n"},
		{"POST", "/decode", "", 400, "syntax error"},
		{"POST", "/decode", "[1]", 400, "syntax error"},
		{"POST", "/decode", `{"payloads":[{"metadata":{"encoding":"YmluYXJ5L2VuY3J5cHRlZA==","encryption-key-id":"azI="}}]}`, 400, `the payload is encrypted with key "k2", and this process has k1`},
		{"POST", "/encode", strings.Repeat(" ", 16<<20+1), 413, "the request is larger than 16777216 bytes\n"},
	} {
		a := ask(t, c.method, url+c.path, c.body, nil)
		require.Equal(t, c.code, a.code, "%s %s: %s", c.method, c.path, a.body)
		require.Contains(t, a.body, c.says)
	}
}

// TestALongRequestOfUnknownLength is cut off where it becomes too long.
func TestALongRequestOfUnknownLength(t *testing.T) {
	url, _ := serve(t, "")
	body := io.MultiReader(strings.NewReader(`{"payloads":[`), io.LimitReader(spaces{}, 64<<20))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/decode", body)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		require.ErrorContains(t, err, "connection") // it was closed while the request was still sent
		return
	}
	defer res.Body.Close()
	require.Equal(t, http.StatusBadRequest, res.StatusCode)
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestServeEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- codecserver.Serve(ctx, l, codecserver.Options{Log: slog.New(slog.DiscardHandler)}) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 404 Not Found\r\n", line)
	cancel()
	require.NoError(t, <-ended)
}
