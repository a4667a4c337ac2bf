package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/config"
)

func TestFlagsOfDev(t *testing.T) {
	t.Chdir(t.TempDir())
	load := func(args ...string) (config.Settings, error) {
		c := &cli{}
		cmd := devCommand(c)
		require.NoError(t, cmd.ParseFlags(args))
		return c.load(cmd)
	}
	s, err := load("--simulated-hosts", "200", "--dev.nodes", "3")
	require.NoError(t, err)
	require.Equal(t, 200, s.Dev.SimulatedHosts)
	require.Equal(t, 3, s.Dev.Nodes)
	s, err = load()
	require.NoError(t, err)
	require.Equal(t, 0, s.Dev.SimulatedHosts)
	_, err = load("--simulated-hosts", "201")
	require.EqualError(t, err, `setting refused: dev.simulated_hosts = "201" (--simulated-hosts): want 0 to 200`)
}
