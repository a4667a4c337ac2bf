package local_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/local"
	"tidewait/internal/natstest"
)

func TestSimulatedHosts(t *testing.T) {
	const patience = time.Minute
	url := natstest.Start(t, &server.Options{}).ClientURL()
	nc := natstest.Connect(t, url)
	events, err := nc.SubscribeSync("wasmbus.evt.east.>")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())

	settings := config.Defaults()
	settings.NATS.URL, settings.Wadm.Lattice = url, "east"
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
