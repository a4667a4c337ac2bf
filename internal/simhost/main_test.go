package simhost_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/natstest"
	"tidewait/internal/simhost"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// noon is when manual clocks begin.
var noon = time.Date(2031, 6, 1, 12, 0, 0, 0, time.UTC)

// startNATS runs a NATS server and returns its address.
func startNATS(t testing.TB) string {
	t.Helper()
	return natstest.Start(t, &server.Options{}).ClientURL()
}

// world is a lattice and a client that hears all of it in order.
type world struct {
	t     testing.TB
	l     *simhost.Lattice
	clock *simhost.ManualClock
	nc    *nats.Conn
	heard chan *nats.Msg
	inbox string
	prefx string
	asked int
}

// newWorld makes a lattice on its own server. Time stands still in it unless
// the options bring a clock.
func newWorld(t testing.TB, o simhost.Options) *world {
	t.Helper()
	url := startNATS(t)
	w := &world{t: t, heard: make(chan *nats.Msg, 100_000), nc: natstest.Connect(t, url)}
	if o.Clock == nil {
		w.clock = simhost.NewManualClock(noon)
		o.Clock = w.clock
	}
	w.l = simhost.NewLattice(natstest.Connect(t, url), o)
	t.Cleanup(w.l.Close)
	lattice, account := "default", ""
	if o.Lattice != "" {
		lattice = o.Lattice
	}
	if o.Account != "" {
		account = o.Account + "."
	}
	w.prefx = account + "wasmbus.ctl.v1." + lattice + "."
	w.inbox = nats.NewInbox()
	for _, subject := range []string{account + "wasmbus.evt." + lattice + ".>", w.inbox + ".*"} {
		_, err := w.nc.ChanSubscribe(subject, w.heard)
		require.NoError(t, err)
	}
	require.NoError(t, w.nc.Flush())
	return w
}

func (w *world) start(spec simhost.HostSpec) *simhost.Host {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	h, err := w.l.Start(ctx, spec)
	require.NoError(w.t, err)
	return h
}

// next returns what is heard next.
func (w *world) next() *nats.Msg {
	w.t.Helper()
	select {
	case m := <-w.heard:
		return m
	case <-time.After(patience):
		require.Fail(w.t, "nothing more is heard")
		return nil
	}
}

// send sends a command.
func (w *world) send(command, body string) {
	w.t.Helper()
	w.asked++
	require.NoError(w.t, w.nc.PublishRequest(w.prefx+command, w.inbox+".reply", []byte(body)))
}

// settle returns what is heard until h has done all that it had to do.
func (w *world) settle(h *simhost.Host) []*nats.Msg {
	w.t.Helper()
	mark := w.inbox + ".mark"
	require.NoError(w.t, w.nc.PublishRequest(w.prefx+"component.mark."+h.ID(), mark, nil))
	var all []*nats.Msg
	for {
		m := w.next()
		if m.Subject == mark {
			return all
		}
		all = append(all, m)
	}
}

// do sends a command to h and returns all that is heard of it, each on a line.
func (w *world) do(h *simhost.Host, command, body string) []string {
	w.t.Helper()
	w.send(command, body)
	return w.lines(w.settle(h))
}

// advance lets time pass and returns what is heard of it.
func (w *world) advance(h *simhost.Host, d time.Duration) []string {
	w.t.Helper()
	w.clock.Advance(d)
	return w.lines(w.settle(h))
}

func (w *world) lines(heard []*nats.Msg) []string {
	w.t.Helper()
	lines := []string{}
	for _, m := range heard {
		lines = append(lines, w.line(m))
	}
	return lines
}

// line shows a message as the recordings do.
func (w *world) line(m *nats.Msg) string {
	w.t.Helper()
	switch {
	case m.Header.Get("Status") == "503":
		return "<- 503"
	case strings.HasPrefix(m.Subject, w.inbox):
		require.Empty(w.t, m.Header, "replies have no headers")
		return "<- " + string(m.Data)
	}
	var e struct {
		Data json.RawMessage `json:"data"`
	}
	require.NoError(w.t, json.Unmarshal(m.Data, &e), "%s", m.Data)
	require.Empty(w.t, m.Header, "events have no headers")
	return "** " + m.Subject[strings.LastIndexByte(m.Subject, '.')+1:] + " " + string(e.Data)
}

// names returns the first two words of lines that are events, and replies as they are.
func names(lines []string) []string {
	short := make([]string, len(lines))
	for i, line := range lines {
		short[i] = line
		if words := strings.SplitN(line, " ", 3); words[0] == "**" {
			short[i] = words[1]
		}
	}
	return short
}

const acked = `<- {"success":true,"message":""}`

func scale(id, image string, count string) string {
	return `{"component_ref":"` + image + `","component_id":"` + id + `","count":` + count + `}`
}
