package activities

import (
	"testing"

	"github.com/stretchr/testify/require"

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
