-- +goose Up

-- How machines are started: booted, or restored from a snapshot.
ALTER TABLE topology_runs
    ADD COLUMN start_kind text NOT NULL DEFAULT '' CHECK (start_kind IN ('', 'cold', 'snapshot')),
    ADD COLUMN start_why  text NOT NULL DEFAULT ''; -- why it was not restored

-- What a node's backend counted since its agent was started.
ALTER TABLE node_backends ADD COLUMN starts jsonb NOT NULL DEFAULT '{}';
