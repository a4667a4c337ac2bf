package wadmapi

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/wadm"
)

func TestLessOf(t *testing.T) {
	since := time.Date(2026, 2, 1, 10, 0, 0, 0, time.UTC)
	rows := []wadm.ScalerStatus{{ID: "i", Kind: "SpreadScaler", Name: "n"}}
	for _, c := range []struct {
		about  string
		status wadm.Status
		want   string
	}{
		{"not deployed", wadm.NotDeployed(), `{"status":{"type":"undeployed"},"version":"","components":[]}`},
		{
			"waiting", wadm.AllWaiting(rows, "never_observed", "why", since),
			`{"status":{"type":"waiting","message":"why","reason":"never_observed","since":"2026-02-01T10:00:00Z"},"version":"","components":[],"trimmed":true}`,
		},
		{
			"trimmed already",
			wadm.Status{Status: wadm.StatusInfo{Type: wadm.Deployed, Attempt: 3}, Trimmed: true},
			`{"status":{"type":"deployed","attempt":3},"version":"","components":[],"trimmed":true}`,
		},
	} {
		raw, err := json.Marshal(c.status)
		require.NoError(t, err)
		less, err := lessOf(raw, withoutScalers)
		require.NoError(t, err)
		require.Equal(t, c.want, string(less), c.about)
		again, err := lessOf(less, shortMessages)
		require.NoError(t, err)
		require.Equal(t, c.want, string(again), c.about)
	}
	for _, raw := range []string{"", `{"status":{"type":"no type"}}`, `{"status":1}`, `{"status"`} {
		_, err := lessOf(json.RawMessage(raw), withoutScalers)
		require.Error(t, err, raw)
	}
}

func TestCut(t *testing.T) {
	require.Equal(t, "abc", cut("abc", 3))
	require.Equal(t, "…", cut("abcd", 3))
	require.Equal(t, "a…", cut("aébcd", 5))
	require.Equal(t, "aé…", cut("aébcd...", 6))
	require.Empty(t, cut("abc", 2))
	require.Empty(t, cut("abc", 0))
}

func TestCovered(t *testing.T) {
	for _, c := range []struct {
		subject, pattern string
		want             bool
	}{
		{"wadm.status.*.*", "wadm.status.*.*", true},
		{"wadm.status.*.*", "wadm.status.>", true},
		{"wadm.status.*.*", "wadm.>", true},
		{"wadm.status.*.*", "*.status.*.*", true},
		{"wadm.status.*.*", "wadm.status.*", false},
		{"wadm.status.*.*", "wadm.status.default.*", false},
		{"wadm.status.*.*", "wadm.status.*.*.*", false},
		{"wadm.evt.*.>", "wadm.evt.>", true},
		{"wadm.evt.*.>", "wadm.evt.*.>", true},
		{"wadm.evt.*.>", "wadm.evt.*.*", false},
		{"wadm.evt.*.>", "wadm.evt.*.*.>", false},
		{"A.wadm.evt.*.>", "wadm.evt.*.>", false},
	} {
		require.Equal(t, c.want, covered(c.subject, []string{"other", c.pattern}), c)
	}
}

func TestPrefixes(t *testing.T) {
	for given, want := range map[string]string{
		"wadm.api": "wadm.api.>", " wadm.api ": "wadm.api.>", ".wadm.api.": "wadm.api.>", " ..my.. ": "my.>",
	} {
		s, err := newScheme(given, false)
		require.NoError(t, err)
		require.Equal(t, want, s.pattern())
		s, err = newScheme(given, true)
		require.NoError(t, err)
		require.Equal(t, "*."+want, s.pattern())
	}
	for _, given := range []string{"", " ", ".", " . "} {
		_, err := newScheme(given, false)
		require.Error(t, err)
	}
}

// Versions grow when many are made in one millisecond, and when the clock is
// set back.
func TestMadeUpVersionsGrow(t *testing.T) {
	var v versionSource
	before := ""
	for range 10_000 {
		next, err := v.next()
		require.NoError(t, err)
		require.Greater(t, next, before)
		before = next
	}
	v.latest += 3_600_000
	for range 3 {
		next, err := v.next()
		require.NoError(t, err)
		require.Greater(t, next, before)
		before = next
	}
}
