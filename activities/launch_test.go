package activities

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/mission"
	"tidewait/internal/store"
)

func TestWhatARerunTakesOver(t *testing.T) {
	launched := func() store.LastLaunch {
		return store.LastLaunch{Launch: 3, Gateway: "gw", Base: "base", Phases: []store.LaunchPhase{
			{Name: "survey", Status: "succeeded", Commit: "c1"},
			{Name: "build", Status: "succeeded", Commit: "c2"},
			{Name: "report", Status: "failed"},
			{Name: "publish", Status: "cancelled"},
		}}
	}
	for name, c := range map[string]struct {
		first  int
		change func(*store.LastLaunch)
		want   store.Rerun
		err    string
	}{
		"the first phase":        {first: 0, want: store.Rerun{Of: 3, Gateway: "gw", Commit: "base"}},
		"the one that failed":    {first: 2, want: store.Rerun{Of: 3, Gateway: "gw", Commit: "c2", Commits: []string{"c1", "c2"}}},
		"one that had succeeded": {first: 1, want: store.Rerun{Of: 3, Gateway: "gw", Commit: "c1", Commits: []string{"c1"}}},
		"after the one that failed": {
			first: 3, err: `phase "report" has no commit in launch 3, where it is failed; rerun from it or from an earlier phase`,
		},
		"never launched": {
			change: func(l *store.LastLaunch) { *l = store.LastLaunch{} },
			err:    "the mission was never launched, so there is nothing to begin from; launch it",
		},
		"expired": {
			first: 1, change: func(l *store.LastLaunch) { l.Expired, l.Phases = true, nil },
			err: "launch 3 ended so long ago that it is not kept any more; launch the mission again",
		},
		"no checkout": {
			change: func(l *store.LastLaunch) { l.Base = "" },
			err:    "the checkout of launch 3 was never opened, so there is nothing to begin from; launch the mission again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			last := launched()
			if c.change != nil {
				c.change(&last)
			}
			got, err := takeOver(last, c.first)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, &c.want, got)
		})
	}
}

func TestImagesReachMachinesAndPlacement(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	solo := mission.Phase{Name: "solo", Image: "registry.example.com/tool:1@" + digest, Run: []string{"x"}}
	plain := mission.Phase{Name: "plain", Image: mission.DefaultImage, Run: []string{"x"}}
	team := mission.Phase{Name: "team", Image: mission.DefaultImage, Agents: []mission.Agent{
		{Name: "a", Replicas: 2, Image: "oci:/srv/tool:1", Run: []string{"x"}}, {Name: "b", Replicas: 1, Run: []string{"x"}},
	}}
	m := mission.Mission{Spec: mission.Spec{Backend: "microvm"}}
	require.Equal(t, "registry.example.com/tool:1@"+digest, command(solo).Machine.Image)
	require.Equal(t, []string{digest}, demand(m, solo).Images)
	require.Empty(t, command(plain).Machine.Image)
	require.Empty(t, demand(m, plain).Images)
	require.Equal(t, "oci:/srv/tool:1", command(team).Agents[0].Machine.Image)
	require.Empty(t, command(team).Agents[1].Machine.Image)
	require.Equal(t, []string{"oci:/srv/tool:1"}, demand(m, team).Images)
}
