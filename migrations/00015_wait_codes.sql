-- +goose Up

-- The kinds of waits and their codes are a closed list, so that people can alert
-- on them: ledger.WaitCodes, which a test compares with this one.
-- +goose StatementBegin
CREATE FUNCTION is_wait_code(kind text, code text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (kind, code) IN (
        ('capacity', 'capacity_cpu'), ('capacity', 'capacity_memory'), ('capacity', 'capacity_disk'), ('capacity', 'capacity_slots'),
        ('capacity', 'capacity_fragmented'), ('capacity', 'behind_in_queue'), ('capacity', 'held_for_head'),
        ('capacity', 'starting_limit'), ('capacity', 'nodes_draining'), ('capacity', 'nodes_lost'),
        ('capacity', 'no_nodes_registered'), ('capacity', 'not_evaluated'), ('capacity', 'placer_unavailable'),
        ('node', 'node_silent'),
        ('gateway', 'gateway_unreachable'), ('gateway', 'results_bucket_full'),
        ('hold', 'awaiting_release'),
        ('observer', 'observer_absent'),
        ('lattice', 'never_observed'), ('lattice', 'no_live_hosts'), ('lattice', 'no_eligible_host'),
        ('lattice', 'not_enough_hosts'), ('lattice', 'hosts_taken'),
        ('backoff', 'command_failed'), ('backoff', 'command_refused'), ('backoff', 'command_timed_out'),
        ('dependency', 'config_missing'), ('dependency', 'secret_missing'),
        ('dependency', 'shared_application_missing'), ('dependency', 'link_conflict'))
$$;
-- +goose StatementEnd

ALTER TABLE capacity_waits DROP CONSTRAINT capacity_waits_code,
    ADD CONSTRAINT capacity_waits_code CHECK (is_wait_code('capacity', code));
-- A phase that nobody has looked at waits for capacity and is in no queue.
ALTER TABLE open_waits DROP CONSTRAINT open_waits_kind_check,
    ADD CONSTRAINT open_waits_code CHECK (is_wait_code(kind, code) AND (kind <> 'capacity' OR code = 'placer_unavailable'));
ALTER TABLE wait_history DROP CONSTRAINT wait_history_code,
    ADD CONSTRAINT wait_history_code CHECK (is_wait_code(kind, code));
