-- +goose Up

-- When an engine last proved that it could hear nodes and write that down, and
-- since when that went on without a gap. There is one row.
CREATE TABLE listening (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    since    timestamptz NOT NULL DEFAULT clock_timestamp(),
    heard_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (since <= heard_at)
);
INSERT INTO listening DEFAULT VALUES;

ALTER TABLE nodes
    -- How often the node was given up as lost, from 1. A run carries the number it
    -- was placed with, and one with an older number must not commit.
    ADD COLUMN lease_epoch bigint NOT NULL DEFAULT 1,
    -- When it was given up for its present silence, or an earlier one.
    ADD COLUMN lost_at timestamptz,
    -- How long its present silence was when the listening before this one ended.
    ADD COLUMN silent_before interval NOT NULL DEFAULT '0',
    -- The number of its agent's latest heartbeat, and the agent processes that
    -- spoke for it before this one.
    ADD COLUMN beat bigint NOT NULL DEFAULT 0,
    ADD COLUMN former_boots text[] NOT NULL DEFAULT '{}';

ALTER TABLE topology_runs
    ADD COLUMN lease_epoch bigint NOT NULL DEFAULT 1,
    -- When its phase was told that the drain of its node is over.
    ADD COLUMN evicted_at timestamptz;
CREATE INDEX topology_runs_open ON topology_runs (node_id) WHERE ended_at IS NULL;

-- How long a node has been silent while somebody listened without a gap. It does
-- not grow while nobody listens.
-- +goose StatementBegin
CREATE FUNCTION silence(n nodes) RETURNS interval LANGUAGE sql STABLE AS $$
    SELECT GREATEST(n.silent_before, LEAST(l.heard_at - n.heartbeat_at, l.heard_at - l.since), interval '0') FROM listening l
$$;
-- +goose StatementEnd

-- What a node still holds: machines, and results that are not committed yet.
-- +goose StatementBegin
CREATE FUNCTION holds_something(n nodes) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT n.slots_reserved > 0 OR EXISTS (SELECT 1 FROM topology_runs r WHERE r.node_id = n.id AND r.ended_at IS NULL)
$$;
-- +goose StatementEnd
