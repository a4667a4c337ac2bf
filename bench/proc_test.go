package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMemoryOf(t *testing.T) {
	const status = "Name:\tengine\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\n"
	require.Equal(t, 100.0, memoryOf(status, "VmRSS"))
	require.Equal(t, 200.0, memoryOf(status, "VmHWM"))
	require.Zero(t, memoryOf(status, "VmSwap"))
}

func TestTicksOf(t *testing.T) {
	const stat = "42 (a (strange) name) S 1 42 42 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 9 0 7 8 9"
	took, err := ticksOf(stat)
	require.NoError(t, err)
	require.Equal(t, 1270*time.Millisecond, took)

	_, err = ticksOf("42 (x) S 1 2")
	require.EqualError(t, err, "the line in /proc is too short")
}

func TestUsageOfThisProcess(t *testing.T) {
	u, err := usageOf(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, u.resident, 1.0)
	require.GreaterOrEqual(t, u.peak, u.resident)
}

func TestDescendant(t *testing.T) {
	shell := exec.Command("sh", "-c", "echo begun; sleep 60; true")
	out, err := shell.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	_, err = out.Read(make([]byte, 8))
	require.NoError(t, err)

	var sleep int
	require.Eventually(t, func() bool {
		sleep = descendant(os.Getpid(), "sleep")
		return sleep != 0
	}, 10*time.Second, time.Millisecond)
	require.Zero(t, descendant(os.Getpid(), "no-such-program"))
	require.NoError(t, syscall.Kill(sleep, syscall.SIGTERM))
	require.NoError(t, shell.Wait(), "the shell goes on when its sleep is ended")
}
