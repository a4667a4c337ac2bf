package wadmapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clientFixture is a file of testdata/clients: what a client of wadm puts on the
// wire, byte by byte, and the replies it wants.
type clientFixture struct {
	Client    string `json:"client"`
	Source    string `json:"source"` // where it was read
	Shapes    string `json:"shapes"`
	Connect   string `json:"connect"`
	Subscribe string `json:"subscribe"`
	Requests  []struct {
		Call   string `json:"call"`
		Where  string `json:"where"`
		Wire   string `json:"wire"`
		Result string `json:"result"` // empty: the reply is an array
		Shape  string `json:"shape"`  // keys in wadm's order, and the types of values
	} `json:"requests"`
}

func TestClientsOfWadm(t *testing.T) {
	for _, file := range []string{"wash.json", "go.json"} {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile("testdata/clients/" + file)
			require.NoError(t, err)
			var f clientFixture
			require.NoError(t, json.Unmarshal(text, &f))
			a := startAPI(t, options{})
			w := dialWire(t, a.natsURL, f.Connect+f.Subscribe)
			for _, r := range f.Requests {
				reply := w.ask(t, r.Wire)
				require.Equal(t, r.Shape, shapeOf(t, reply), "%s: %s", r.Call, reply)
				if r.Result != "" {
					var envelope struct{ Result, Message string }
					require.NoError(t, json.Unmarshal([]byte(reply), &envelope))
					require.Equal(t, r.Result, envelope.Result, "%s: %s", r.Call, reply)
					require.NotEmpty(t, envelope.Message, r.Call)
				}
				if strings.Contains(r.Call, "same version again") {
					require.Contains(t, reply, "already exists", "the one text that clients look for")
				}
			}
		})
	}
}

// wire is a connection to NATS without a client library.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialWire(t *testing.T, natsURL, hello string) *wire {
	t.Helper()
	u, err := url.Parse(natsURL)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	w := &wire{conn: conn, in: bufio.NewReader(conn)}
	_, err = io.WriteString(conn, hello)
	require.NoError(t, err)
	return w
}

// ask sends a request as it is and returns the body of the next message.
func (w *wire) ask(t *testing.T, request string) string {
	t.Helper()
	_, err := io.WriteString(w.conn, request)
	require.NoError(t, err)
	for {
		line, err := w.in.ReadString('\n')
		require.NoError(t, err)
		words := strings.Fields(line)
		switch words[0] {
		case "INFO", "PONG":
		case "PING":
			_, err := io.WriteString(w.conn, "PONG\r\n")
			require.NoError(t, err)
		case "MSG":
			require.Equal(t, strings.Fields(request)[2], words[1], "the reply is for this request")
			size, err := strconv.Atoi(words[len(words)-1])
			require.NoError(t, err)
			body := make([]byte, size+len("\r\n"))
			_, err = io.ReadFull(w.in, body)
			require.NoError(t, err)
			return string(body[:size])
		default:
			require.Fail(t, "replies have no headers, and the server no complaints", line)
		}
	}
}

// additions are the keys of replies that wadm has not.
var additions = []string{"warnings", "reason", "since", "attempt", "nextAttempt", "trimmed", "total", "next"}

// shapeOf is a JSON value with types in place of values. An array shows the
// shapes that its elements have.
func shapeOf(t *testing.T, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	shape := shapeOfNext(t, d)
	_, err := d.Token()
	require.ErrorIs(t, err, io.EOF, "one value")
	return shape
}

func shapeOfNext(t *testing.T, d *json.Decoder) string {
	t.Helper()
	token, err := d.Token()
	require.NoError(t, err)
	switch token := token.(type) {
	case json.Delim:
		var parts []string
		for d.More() {
			key := ""
			if token == '{' {
				name, err := d.Token()
				require.NoError(t, err)
				key = name.(string) + ":"
			}
			part := key + shapeOfNext(t, d)
			known := token == '[' && slices.Contains(parts, part)
			if !known && !slices.Contains(additions, strings.TrimSuffix(key, ":")) {
				parts = append(parts, part)
			}
		}
		closing, err := d.Token()
		require.NoError(t, err)
		return fmt.Sprint(token) + strings.Join(parts, ",") + fmt.Sprint(closing)
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	}
	return "null"
}
