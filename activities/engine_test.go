package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/config"
)

func TestRetriesBehindTheHeadWindowAreStretched(t *testing.T) {
	fleet := config.Defaults().Fleet
	for position, want := range map[int]time.Duration{
		0: 0, 1: 0, 64: 0, 65: 10156250 * time.Microsecond, 128: 20 * time.Second, 640: 100 * time.Second,
		1920: 5 * time.Minute, 10_000: 5 * time.Minute,
	} {
		require.Equal(t, want, retryAfter(position, fleet), position)
	}
	// All of ten thousand ask about as often as four or five windows would.
	perSecond := 0.0
	for position := 1; position <= 10_000; position++ {
		after := retryAfter(position, fleet)
		if after == 0 {
			after = fleet.RetryInterval
		}
		perSecond += 1 / after.Seconds()
	}
	require.InDelta(t, 55, perSecond, 1)

	fleet.RetryInterval = 10 * time.Minute
	require.Equal(t, 10*time.Minute, retryAfter(10_000, fleet), "never sooner than the interval")
}
