package api_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// Every wait is looked at again, and says when: by the clock, or by what leads to it.
func TestEveryWaitHasANextLook(t *testing.T) {
	next := time.Now()
	require.Empty(t, api.NextLookAt(api.Wait{Kind: "backoff", Code: "command_failed", NextCheck: &next}), "the clock says it")
	for code, want := range map[string]string{
		"node_silent": "every 2 s", "gateway_unreachable": "when it answers", "results_bucket_full": "every 10 s",
		"awaiting_release": "when it is released", "observer_absent": "when it is observed", "never_observed": "when a host appears",
		"no_live_hosts": "when a host appears", "no_eligible_host": "when a host appears", "not_enough_hosts": "when a host appears",
		"hosts_taken": "when a host is free", "command_failed": "under way", "config_missing": "when it appears",
		"secret_missing": "when it appears", "shared_application_missing": "when it appears", "link_conflict": "when the link is gone",
		"placer_unavailable": "when it answers",
	} {
		require.Equal(t, want, api.NextLookAt(api.Wait{Kind: kindOf(code), Code: code}), code)
	}
	for kind, codes := range ledger.WaitCodes() {
		for _, code := range codes {
			w := api.Wait{Kind: kind, Code: code}
			if kind == "capacity" && code != "placer_unavailable" {
				continue // the placer looks by the clock
			}
			require.NotEmpty(t, api.NextLookAt(w), "%s %s", kind, code)
		}
	}
}

func kindOf(code string) string {
	for kind, codes := range ledger.WaitCodes() {
		if slices.Contains(codes, code) {
			return kind
		}
	}
	return ""
}
