package process_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/process"
)

// TestIsolation tries to get out of the namespaces.
func TestIsolation(t *testing.T) {
	b, err := newBackend(t.TempDir())
	require.NoError(t, err)
	m, err := b.Create(t.Context(), vm.Spec{RunID: "r", CPUMilli: 1000, MemoryMiB: 128, DiskMiB: 16})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Destroy(context.Background(), "r")) })
	for _, c := range []struct{ name, script, want string }{
		{"its user is not root", `id -u`, "1000"},
		{"it has no capabilities", `sed -n 's/^CapEff:\t//p' /proc/self/status`, "0000000000000000"},
		{"it gets no new privileges", `sed -n 's/^NoNewPrivs:\t//p' /proc/self/status`, "1"},
		{"it sees no other processes", `ls /proc | grep -c '^[0-9]' | sed 's/^[1-6]$/few/'`, "few"},
		{"it cannot make namespaces", `unshare -U true 2>/dev/null || echo refused`, "refused"},
		{"it cannot mount", `mount -t tmpfs none /tmp 2>/dev/null || echo refused`, "refused"},
		{"it cannot write programs", `touch /usr/bin/x 2>/dev/null || echo refused`, "refused"},
		{"it cannot write the root", `mkdir /x 2>/dev/null || echo refused`, "refused"},
		{"it sees nothing else of the host", `for f in /home /var /opt /sys /etc/shadow; do test ! -e $f || echo $f; done; cat /root/* /tmp/* 2>/dev/null`, ""},
		{"it cannot kill the agent", `kill -KILL 1 2>/dev/null; echo here`, "here"},
		{"it has no descriptors but its own", `ls -l /proc/self/fd | sed -n 's/.* \([0-9]*\) -> .*/\1/p' | grep -v '^[012]$' | wc -l`, "1"}, // that of ls
		{"its host has another name", `hostname`, "tidewait"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got string
			_, err := m.Run(t.Context(), vm.Command{Argv: []string{"sh", "-c", c.script}}, func(_ string, line []byte) { got += string(line) })
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestNoAgent(t *testing.T) {
	b, err := process.New(process.Options{Agent: "/nowhere/tidewait-guest", RunDir: t.TempDir()})
	require.NoError(t, err)
	report := b.Probe(t.Context())
	require.False(t, report.OK)
	require.Contains(t, report.Why, "the guest agent: open /nowhere/tidewait-guest")
	ids, err := b.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, ids)
}

// TestBrokenAgent starts something that is no agent.
func TestBrokenAgent(t *testing.T) {
	b, err := process.New(process.Options{Agent: "/bin/false", RunDir: t.TempDir()})
	require.NoError(t, err)
	_, err = b.Create(t.Context(), vm.Spec{RunID: "r", CPUMilli: 1000, MemoryMiB: 128, DiskMiB: 16})
	var f *vm.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, vm.BootFailed, f.Code)
	require.Contains(t, f.Message, "exit status 1")
}

// TestProbeIsHonest compares what the probe says with what is possible here.
func TestProbeIsHonest(t *testing.T) {
	b, err := newBackend(t.TempDir())
	require.NoError(t, err)
	report := b.Probe(t.Context())
	require.True(t, report.OK, report.Why)
	require.Equal(t, "none", report.Info.Accel)
	require.Contains(t, report.Info.Isolation, "no virtual machine")
	require.Contains(t, report.Info.Isolation, "no network")
	require.True(t, report.Network, report.Why)
	require.Contains(t, report.Why, "the disk is limited by the size of each file only")
	if !report.Enforced {
		require.Contains(t, report.Why, "CPU is not limited, and memory only for each process")
		require.NotZero(t, os.Geteuid(), "root that cannot make cgroups is worth a look: %s", report.Why)
	}
}
