package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// twoPhases is a mission whose second phase is held, so that there is time to
// break something between the two.
func twoPhases(name string) missionDoc {
	return missionDoc{name: name, phases: []phaseDoc{
		{name: "first", script: "echo one > one.txt"},
		{name: "second", script: "cat one.txt README > two.txt", extra: "hold: true"},
	}}
}

// committedFirst launches it and waits for the first phase's commit.
func (p *product) committedFirst(m missionDoc) api.MissionDetail {
	p.t.Helper()
	p.launch(m)
	return p.until(m.name, "the second phase is held", func(d api.MissionDetail) bool {
		return d.PhaseList[0].Commit != "" && d.PhaseList[1].Wait != nil
	})
}

// goesOn releases the second phase, and wants all results.
func (p *product) goesOn(name string) {
	p.t.Helper()
	p.must("phase", "release", name, "second")
	require.Equal(p.t, "succeeded", p.ended(name).Status)
	diff := p.must("mission", "results", name, "--diff")
	require.Contains(p.t, diff, "+++ b/one.txt\n@@ -0,0 +1 @@\n+one\n")
	require.Contains(p.t, diff, "+++ b/two.txt\n@@ -0,0 +1,2 @@\n+one\n+a small workspace\n")
}

// TestResultsSurviveTheGatewaysDisk takes the disk of the gateway away in several
// ways between two phases.
func TestResultsSurviveTheGatewaysDisk(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.node()
	disk := filepath.Join(p.dir, "gateway", "gw")

	t.Run("it is empty after a crash", func(t *testing.T) {
		p := p.in(t)
		before := p.committedFirst(twoPhases("wiped"))
		require.NoError(t, p.gateway.Kill())
		require.NoError(t, os.RemoveAll(disk))
		require.NoError(t, p.gateway.Start(t.Context()))
		require.Contains(t, p.must("mission", "results", "wiped"), before.PhaseList[0].Commit[:12])
		p.goesOn("wiped")
	})
	t.Run("it goes while the gateway runs", func(t *testing.T) {
		p := p.in(t)
		p.committedFirst(twoPhases("pulled"))
		require.NoError(t, os.RemoveAll(disk))
		p.goesOn("pulled")
	})
	t.Run("a pack of it is cut short", func(t *testing.T) {
		p := p.in(t)
		p.committedFirst(twoPhases("cut"))
		require.NoError(t, p.gateway.Kill())
		packs, err := filepath.Glob(filepath.Join(disk, "missions", "cut.git", "objects", "pack", "*.pack"))
		require.NoError(t, err)
		require.NotEmpty(t, packs)
		for _, pack := range packs {
			require.NoError(t, os.Chmod(pack, 0o600))
			info, err := os.Stat(pack)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(pack, info.Size()-9))
		}
		require.NoError(t, p.gateway.Start(t.Context()))
		p.goesOn("cut")
		aside, err := filepath.Glob(filepath.Join(disk, "damaged", "cut-*"))
		require.NoError(t, err)
		require.Len(t, aside, 1)
	})
	t.Run("another machine takes the id over", func(t *testing.T) {
		p := p.in(t)
		p.committedFirst(twoPhases("moved"))
		require.NoError(t, p.gateway.Kill())
		other, err := p.StartWorker(t.Context(), "other", []string{"gateway"}, "TIDEWAIT_GATEWAY_ID=gw", "TIDEWAIT_DATA_DIR="+t.TempDir())
		require.NoError(t, err)
		p.goesOn("moved")
		// Launching again from the second phase needs what the first one committed.
		p.must("mission", "rerun", "moved", "--from", "second")
		p.rerunEnds("moved", 2)

		// The machine that was away is behind, and catches up.
		require.NoError(t, other.Kill())
		require.NoError(t, p.gateway.Start(t.Context()))
		p.secondIsThere("moved", 1)
		p.secondIsThere("moved", 2)
	})
	p.nothingLeft()
}

// rerunEnds releases the second phase of a rerun.
func (p *product) rerunEnds(name string, launch int) {
	p.t.Helper()
	p.until(name, "the rerun's phase is held", func(d api.MissionDetail) bool { return d.Launch == launch && d.PhaseList[1].Wait != nil })
	p.must("phase", "release", name, "second")
	d := p.until(name, "the rerun ends", func(d api.MissionDetail) bool { return d.Launch == launch && d.EndedAt != nil })
	require.Equal(p.t, "succeeded", d.Status, d.Failure)
	p.secondIsThere(name, launch)
}

func (p *product) secondIsThere(name string, launch int) {
	p.t.Helper()
	require.Contains(p.t, p.must("mission", "results", name, "--launch", itoa(launch), "--diff", "--phase", "second"),
		"+++ b/two.txt\n@@ -0,0 +1,2 @@\n+one\n+a small workspace\n")
}

// TestAFullBucketOfBundlesIsWaitedFor fills the bucket of bundles: the commit is
// not answered before it is kept, and the wait is seen where people look.
func TestAFullBucketOfBundlesIsWaitedFor(t *testing.T) {
	t.Parallel()
	p := start(t, "TIDEWAIT_FLEET_BUNDLE_BYTES=1048576")
	p.node()
	p.launch(missionDoc{name: "m", phases: []phaseDoc{
		{name: "first", script: "head -c 2000000 /dev/urandom > noise"},
		{name: "second", script: "true"},
	}})
	w := p.waiting("m")
	require.Equal(t, []string{"gateway", "results_bucket_full", "m", "first"}, []string{w.Kind, w.Code, w.Mission, w.Phase})
	require.Regexp(t, `^gateway gw cannot commit the results of run r\d+-1: bucket tidewait-bundles is full: `, w.Reason)
	require.Contains(t, p.must("waits", "--code", "results_bucket_full"), "results_bucket_full")
	require.Equal(t, "running", p.show("m").Status)

	js, err := jetstream.New(p.connect())
	require.NoError(t, err)
	_, err = js.UpdateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: api.BucketBundles, MaxBytes: 8 << 20})
	require.NoError(t, err)
	m := p.ended("m")
	require.Equal(t, "succeeded", m.Status)
	past := m.PhaseList[0].Waits[0]
	require.Equal(t, []string{"gateway", "results_bucket_full", "answered"}, []string{past.Kind, past.Code, past.EndedBy})
	require.Less(t, past.Ended.Sub(past.Since), 30*time.Second)
	p.nothingLeft()
}
