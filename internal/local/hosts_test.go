package local_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/local"
)

func TestSimulatedHosts(t *testing.T) {
	const patience = time.Minute
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	require.NoError(t, err)
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	require.True(t, s.ReadyForConnections(patience), "the NATS server must be ready")
	nc, err := nats.Connect(s.ClientURL())
	require.NoError(t, err)
	defer nc.Close()
	events, err := nc.SubscribeSync("wasmbus.evt.east.>")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())

	settings := config.Defaults()
	settings.NATS.URL, settings.Wadm.Lattice = s.ClientURL(), "east"
	hosts, err := local.SimulateHosts(t.Context(), settings, 4, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	var zones []string
	for _, h := range hosts.Lattice.Hosts() {
		zones = append(zones, h.Name()+" "+h.Inventory().Labels["zone"])
	}
	require.Equal(t, []string{"sim-1 a", "sim-2 b", "sim-3 c", "sim-4 a"}, zones)
	for range 4 {
		m, err := events.NextMsg(patience)
		require.NoError(t, err)
		require.Equal(t, "wasmbus.evt.east.host_started", m.Subject)
	}
	hosts.Stop()
	for range 4 {
		m, err := events.NextMsg(patience)
		require.NoError(t, err)
		require.Equal(t, "wasmbus.evt.east.host_stopped", m.Subject)
	}
}

func TestSimulatedHostsNeedAServer(t *testing.T) {
	settings := config.Defaults()
	settings.NATS.URL = "nats://127.0.0.1:1"
	_, err := local.SimulateHosts(t.Context(), settings, 1, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "127.0.0.1:1")
}
