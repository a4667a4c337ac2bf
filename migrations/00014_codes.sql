-- +goose Up

-- A refusal for capacity is a wait, one for capability is an end, and neither can
-- be written as the other. no_nodes_registered alone is both: an empty fleet
-- refuses a launch, and lets a running phase wait.
ALTER TABLE capacity_waits ADD CONSTRAINT capacity_waits_code CHECK (
    code NOT IN ('backend_unsupported', 'exceeds_every_node', 'labels_unmatched', 'arch_unmatched', 'request_invalid'));

ALTER TABLE wait_history ADD CONSTRAINT wait_history_code CHECK (kind <> 'capacity' OR
    code NOT IN ('backend_unsupported', 'exceeds_every_node', 'labels_unmatched', 'arch_unmatched', 'request_invalid'));

-- +goose StatementBegin
CREATE FUNCTION is_capacity_code(code text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT code IN ('capacity_cpu', 'capacity_memory', 'capacity_disk', 'capacity_slots', 'capacity_fragmented', 'behind_in_queue',
        'held_for_head', 'starting_limit', 'nodes_draining', 'nodes_lost', 'not_evaluated', 'placer_unavailable')
$$;
-- +goose StatementEnd
ALTER TABLE missions ADD CONSTRAINT missions_failure_code CHECK (NOT is_capacity_code(failure_code));
ALTER TABLE mission_phases ADD CONSTRAINT mission_phases_failure_code CHECK (NOT is_capacity_code(failure_code));
ALTER TABLE mission_launches ADD CONSTRAINT mission_launches_failure_code CHECK (NOT is_capacity_code(failure_code));
