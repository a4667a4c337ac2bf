package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// closedPort returns an address on which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	return address
}

func TestNATSDown(t *testing.T) {
	address := closedPort(t)
	for _, args := range [][]string{
		{"waits"},
		{"waits", "--watch"},
		{"mission", "list"},
		{"mission", "show", "m"},
		{"mission", "results", "m"},
		{"mission", "logs", "m"},
		{"node", "list"},
		{"node", "show", "a"},
		{"node", "cordon", "a"},
	} {
		require.Equal(t, outcome{
			5, "", "tidewait: cannot reach NATS at nats://" + address +
				": no server takes the connection; start the stack with `tidewait dev`, or set nats.url\n",
		}, tidewait(append(args, "--nats.url", "nats://ann:secret@"+address)...), "%q", args)
	}
}

func TestTemporalDown(t *testing.T) {
	address := closedPort(t)
	document := written(t, goodMission)
	for _, args := range [][]string{
		{"mission", "cancel", "m", "--reason", "r"},
		{"phase", "nudge", "m", "p"},
		{"phase", "cancel", "m", "p"},
		{"mission", "launch", document},
	} {
		require.Equal(t, outcome{
			5, "", "tidewait: cannot reach Temporal at " + address + ": dial tcp " + address +
				": connect: connection refused; start the stack with `tidewait dev`, or set temporal.address\n",
		}, tidewait(append(args, "--temporal.address", address)...), "%q", args)
	}
}

// A service that takes connections and says nothing must not hang the command.
func TestSilentServicesAreGivenUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	address := l.Addr().String()

	began := time.Now()
	got := tidewait("waits", "--nats.url", "nats://"+address)
	require.Equal(t, outcome{5, "", "tidewait: cannot reach NATS at nats://" + address +
		": no answer in 3s; start the stack with `tidewait dev`, or set nats.url\n"}, got)
	got = tidewait("phase", "nudge", "m", "p", "--temporal.address", address)
	require.Equal(t, outcome{5, "", "tidewait: cannot reach Temporal at " + address +
		": no answer in 3s; start the stack with `tidewait dev`, or set temporal.address\n"}, got)
	require.Less(t, time.Since(began), 9*time.Second)
}

func TestNoEngine(t *testing.T) {
	b := newBus(t)
	require.Equal(t, outcome{5, "", "tidewait: no engine answers on " + b.url +
		"; start one with `tidewait dev` or `tidewait-worker run --roles engine`, or set nats.url\n"}, b.run("waits"))
}

func TestAnEngineThatDoesNotAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	_, err := b.conn.SubscribeSync(api.SubjectWaitList)
	require.NoError(t, err)
	require.NoError(t, b.conn.Flush())
	require.Equal(t, outcome{5, "", "tidewait: the engine on " + b.url +
		" did not answer in 5s; start one with `tidewait dev` or `tidewait-worker run --roles engine`, or set nats.url\n"}, b.run("waits"))
}

func TestNoGateway(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{Mission: api.Mission{Name: "m", Launch: 1, Status: "running"}, Gateway: "gw-1"}))
	require.Equal(t, outcome{5, "", "tidewait: no gateway gw-1 answers on " + b.url +
		"; it holds the mission's results, so start that gateway again\n"}, b.run("mission", "results", "m"))
}

func TestNoLogStream(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{Mission: api.Mission{Name: "m", Launch: 1, Status: "running"}}))
	require.Equal(t, outcome{5, "", "tidewait: NATS on " + b.url +
		" has no log stream TIDEWAIT_LOGS; create it with `tidewait setup`\n"}, b.run("mission", "logs", "m"))
}

func TestInterrupted(t *testing.T) {
	b := newBus(t)
	ctx, cancel := context.WithCancel(context.Background())
	b.answer(api.SubjectWaitList, func() any {
		cancel()
		return api.WaitList{}
	})
	got := tidewaitWith(ctx, "", "waits", "--watch", "--nats.url", b.url)
	require.Equal(t, 130, got.code)
	require.Equal(t, "tidewait: interrupted\n", got.errors)
	require.True(t, got.out == "" || got.out == "nothing waits\n", strings.TrimSpace(got.out))
}
