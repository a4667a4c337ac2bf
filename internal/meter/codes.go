package meter

// Codes are the waits that the database knows, by kind: all of them are reported,
// those that nobody has as zero. The wait for the placer, placer_unavailable, is
// not among them: it is declared when the database or the placer does not answer.
var Codes = map[string][]string{
	"capacity": {
		"capacity_cpu", "capacity_memory", "capacity_disk", "capacity_slots", "capacity_fragmented", "behind_in_queue",
		"held_for_head", "starting_limit", "nodes_draining", "nodes_lost", "no_nodes_registered", "not_evaluated",
	},
	"node":       {"node_silent"},
	"gateway":    {"gateway_unreachable", "results_bucket_full"},
	"hold":       {"awaiting_release"},
	"observer":   {"observer_absent"},
	"lattice":    {"never_observed", "no_live_hosts", "no_eligible_host", "not_enough_hosts", "hosts_taken"},
	"backoff":    {"command_failed", "command_refused", "command_timed_out"},
	"dependency": {"config_missing", "secret_missing", "shared_application_missing", "link_conflict"},
}

// Kinds of leaks that agents report, as they are named in what they send.
var leakKinds = []string{"directories", "processes", "cgroups", "journals", "machines"}
