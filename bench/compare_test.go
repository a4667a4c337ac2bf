package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// What benchstat printed of two files.
const printed = `pkg: tidewait/bench
,a.txt,,b.txt,,,
,1/s,CI,1/s,CI,vs base,P
Tidewait/placements/1_client,385,∞,300,∞,-22.06%,p=0.008 n=5
Tidewait/placements/8_clients,100,∞,150,∞,+50.00%,p=0.016 n=4+5
geomean,385,,300,,-22.06%,

,a.txt,,b.txt,,,
,sec,CI,sec,CI,vs base,P
Tidewait/freed/p50,0.003,∞,0.0031,∞,~,p=0.690 n=5
Tidewait/freed/p99,0.012,∞,0.024,∞,~,p=1.000 n=1
Tidewait/freed/longest,0.012,∞,0.024,∞,~,p=0.100 n=3+5
Tidewait/freed/slower,0.012,∞,0.024,∞,+100.00%,p=0.008 n=5
Tidewait/freed/gone,0.012,∞,,,,
geomean,1,,2,,+0.38%,

,a.txt,,b.txt,,,
,events,CI,events,CI,vs base,P
Tidewait/history/phase,20,0%,22,0%,+10.00%,n=1
Tidewait/history/mission,26,0%,26,0%,~,n=1
`

func TestDifferences(t *testing.T) {
	all, err := differences([]byte(printed))
	require.NoError(t, err)
	got := map[string]verdict{}
	for _, d := range all {
		got[d.name] = d.verdict
	}
	require.Equal(t, map[string]verdict{
		"placements/1_client": regressed, "placements/8_clients": improved,
		"freed/p50": inNoise, "freed/p99": unjudged, "freed/longest": unjudged, "freed/slower": regressed,
		"history/phase": regressed, "history/mission": equal,
	}, got)
	_, err = differences([]byte("pkg: tidewait/bench\n"))
	require.ErrorIs(t, err, errNoFigures)
}

func TestTell(t *testing.T) {
	all, err := differences([]byte(printed))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, tell(&out, all))
	require.Equal(t, `
Regressions, worse and not by chance (p < 0.05): 3
  placements/1_client                                                      385 → 300 1/s  -22.06% (p=0.008 n=5)
  freed/slower                                                             0.012 → 0.024 sec  +100.00% (p=0.008 n=5)
  history/phase                                                            20 → 22 events  +10.00% (n=1)

Improvements, better and not by chance: 1
  placements/8_clients                                                     100 → 150 1/s  +50.00% (p=0.016 n=4+5)

Measured fewer than 4 times, so that nothing can be said: 2
  freed/p99                                                                0.012 → 0.024 sec  +100.0% (p=1.000 n=1)
  freed/longest                                                            0.012 → 0.024 sec  +100.0% (p=0.100 n=3+5)

Inside the noise: 1, which is no difference
The same: 1
`, out.String())
}
