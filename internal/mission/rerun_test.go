package mission_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/mission"
)

func threePhases() mission.Mission {
	m := mission.Mission{Name: "port"}
	for _, name := range []string{"survey", "build", "report"} {
		m.Spec.Phases = append(m.Spec.Phases, mission.Phase{Name: name, Run: []string{"make", name}, Env: map[string]string{"MODE": "fast"}})
	}
	return m
}

func TestRerunFrom(t *testing.T) {
	const differs = `phase "survey" is not what it was in the launch whose commit would be taken over; rerun from it, or launch the mission again`
	for name, c := range map[string]struct {
		from   string
		change func(now, earlier *mission.Mission)
		want   int
		err    string
	}{
		"the first":                  {from: "survey", want: 0},
		"the last":                   {from: "report", want: 2},
		"an unknown one":             {from: "deploy", err: `phase "deploy" of mission port: there is no such phase; its phases are survey, build, report`},
		"the one that has changed":   {from: "build", change: func(now, _ *mission.Mission) { now.Spec.Phases[1].Run = []string{"ninja"} }, want: 1},
		"after one that has changed": {from: "build", change: func(now, _ *mission.Mission) { now.Spec.Phases[0].Env["MODE"] = "slow" }, err: differs},
		"one that is new": {from: "report", change: func(_, earlier *mission.Mission) {
			earlier.Spec.Phases = earlier.Spec.Phases[:2]
		}, want: 2},
		"after ones that are new": {from: "report", change: func(_, earlier *mission.Mission) { earlier.Spec.Phases = nil }, err: differs},
		"with another turn":       {from: "report", change: func(now, _ *mission.Mission) { now.Spec.Turn = 7 }, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			now, earlier := threePhases(), threePhases()
			if c.change != nil {
				c.change(&now, &earlier)
			}
			got, err := now.RerunFrom(c.from, earlier)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}
