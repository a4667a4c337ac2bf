package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

// TestWhatEndedIsKeptForItsTime lets everything of a mission expire while another
// one is held for longer than all of it is kept.
func TestWhatEndedIsKeptForItsTime(t *testing.T) {
	t.Parallel()
	p := start(t, "TIDEWAIT_FLEET_RUN_TTL=3s", "TIDEWAIT_FLEET_WAIT_TTL=2s", "TIDEWAIT_FLEET_RESULT_TTL=3s",
		"TIDEWAIT_FLEET_LOG_TTL=3s", "TIDEWAIT_FLEET_OBJECT_TTL=6s")
	p.node()
	p.committedFirst(twoPhases("held"))
	held := time.Now()
	p.fails(3, "exceeds_every_node", "mission", "launch", p.write(missionDoc{name: "never", phases: []phaseDoc{{name: "work", memory: "64Gi", script: "true"}}}))
	p.launch(missionDoc{name: "over", phases: []phaseDoc{{name: "work", script: "echo said; echo x > x.txt"}}})
	d := p.ended("over")
	require.Equal(t, "succeeded", d.Status)
	require.Empty(t, d.Expired)
	require.Contains(t, p.must("mission", "results", "over"), d.PhaseList[0].Commit[:12])

	js, err := jetstream.New(p.connect())
	require.NoError(t, err)
	store, err := js.ObjectStore(t.Context(), api.BucketBundles)
	require.NoError(t, err)
	objects := func() []string {
		list, err := store.List(t.Context(), jetstream.ListObjectsShowDeleted())
		require.NoError(t, err) // of the mission that is held there are some
		var names []string
		for _, o := range list {
			names = append(names, o.Name)
		}
		return names
	}
	p.eventually("the bundles are removed", func() bool { return len(objects()) == 3 }, func() any { return objects() })
	require.ElementsMatch(t, []string{"launch/held/1", "bundle/held/1/" + p.show("held").BaseCommit, "bundle/held/1/" + p.show("held").PhaseList[0].Commit}, objects())
	p.eventually("its rows are removed", func() bool { return len(p.show("over").PhaseList) == 0 }, func() any { return p.show("over") })
	require.NoDirExists(t, filepath.Join(p.dir, "gateway", "gw", "missions", "over.git"))
	d = p.show("over")
	require.Equal(t, []api.Expired{
		{What: "runs", Kept: 3 * time.Second}, {What: "logs", Kept: 3 * time.Second}, {What: "results", Kept: 3 * time.Second},
	}, d.Expired)
	require.Equal(t, []any{"succeeded", 1}, []any{d.Status, d.Launch})
	require.Contains(t, p.must("mission", "show", "over"), "  expired phases and runs, which are kept for 3 s\n  expired logs, which are kept for 3 s\n")
	for _, flags := range [][]string{nil, {"--diff"}, {"--stat"}, {"--export", "-"}, {"--into", t.TempDir()}} {
		p.fails(1, "the results of launch 1 of mission over were kept for 3 s and have expired", append([]string{"mission", "results", "over"}, flags...)...)
	}
	out, errs, code := p.tidewait("mission", "logs", "over")
	require.Equal(t, []any{"", "tidewait: logs are kept for 3 s; those of launch 1 have expired\n", 0}, []any{out, errs, code})
	p.fails(1, "launch 1 ended so long ago that it is not kept any more; launch the mission again", "mission", "rerun", "over", "--from", "work")
	p.launch(missionDoc{name: "over", phases: []phaseDoc{{name: "work", script: "true"}}})
	require.Equal(t, 2, p.ended("over").Launch, "its number is not given away again")
	p.fails(1, "launch 1 has expired", "mission", "show", "over", "--launch", "1")

	// The held one has all it needs, although it waited for longer than that.
	p.eventually("more than the time of objects is over", func() bool { return time.Since(held) > 10*time.Second }, func() any { return nil })
	uploads, err := js.ObjectStore(t.Context(), api.BucketWorkspaces)
	require.NoError(t, err)
	var left []string
	p.eventually("what was uploaded is gone, also for a launch that never was", func() bool {
		list, err := uploads.List(t.Context())
		require.NoError(t, err)
		left = nil
		for _, o := range list {
			if !strings.HasPrefix(o.Name, "input.held.") {
				left = append(left, o.Name)
			}
		}
		return len(left) == 0
	}, func() any { return left })
	p.must("phase", "release", "held", "second")
	m := p.ended("held")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	require.Contains(t, p.must("mission", "results", "held", "--diff", "--phase", "second"), "+a small workspace\n")
	p.eventually("waits that ended are removed", func() bool { return p.count("SELECT count(*) FROM wait_history") == 0 }, func() any { return nil })
	p.eventually("acts are removed", func() bool { return p.count("SELECT count(*) FROM acts") == 0 }, func() any { return nil })
	p.nothingLeft()
}
