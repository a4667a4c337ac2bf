package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

func TestWhatHasExpired(t *testing.T) {
	now := time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)
	kept := Retention{Runs: 90 * time.Hour, Waits: 50 * time.Hour, Results: 40 * time.Hour, Logs: 10 * time.Hour}
	there := []api.Phase{{Name: "work"}}
	for name, c := range map[string]struct {
		status string
		launch int
		ago    time.Duration // since it ended; 0: it has not
		phases []api.Phase
		kept   Retention
		want   []string
	}{
		"it runs":            {"running", 1, 0, there, kept, nil},
		"it has just ended":  {"failed", 1, time.Hour, there, kept, nil},
		"logs go first":      {"failed", 1, 11 * time.Hour, there, kept, []string{"logs"}},
		"then results":       {"failed", 1, 41 * time.Hour, there, kept, []string{"logs", "results"}},
		"then waits":         {"failed", 1, 51 * time.Hour, there, kept, []string{"waits", "logs", "results"}},
		"all of it":          {"succeeded", 2, 99 * time.Hour, nil, kept, []string{"runs", "logs", "results"}},
		"kept for ever":      {"succeeded", 1, 9999 * time.Hour, there, Retention{Logs: time.Hour}, []string{"logs"}},
		"it never ran":       {"draft", 0, 0, nil, kept, nil},
		"a draft of another": {"draft", 3, 0, nil, kept, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := api.MissionDetail{Mission: api.Mission{Status: c.status, Launch: c.launch}, PhaseList: c.phases}
			if c.ago > 0 {
				at := now.Add(-c.ago)
				m.EndedAt = &at
			}
			var got []string
			for _, e := range c.kept.expired(m, now) {
				got = append(got, e.What)
			}
			require.Equal(t, c.want, got)
		})
	}
	m := api.MissionDetail{Mission: api.Mission{Status: "failed", Launch: 1, EndedAt: &time.Time{}}, PhaseList: there}
	require.Equal(t, api.Expired{What: "logs", Kept: 10 * time.Hour}, kept.expired(m, now)[1])
}
