-- +goose Up

-- When a waiting phase is expected to start, if anything is known of that, as of
-- the latest look.
ALTER TABLE capacity_waits
    ADD COLUMN starts_by timestamptz,
    ADD COLUMN starts_on text NOT NULL DEFAULT '',
    -- The node is kept for it, so that it starts by then at the latest.
    ADD COLUMN starts_held boolean NOT NULL DEFAULT false;

-- What each pool keeps for the head of its queue. A node may be in several
-- pools, whose passes leave each other's holds alone.
CREATE TABLE capacity_holds (
    pool      text PRIMARY KEY,
    phase_id  bigint NOT NULL REFERENCES mission_phases (id) ON DELETE CASCADE,
    rank      timestamptz NOT NULL, -- of the phase, among those of all pools
    node_id   text NOT NULL REFERENCES nodes (id),
    cpu       bigint NOT NULL CHECK (cpu >= 0),
    memory    bigint NOT NULL CHECK (memory >= 0),
    disk      bigint NOT NULL CHECK (disk >= 0),
    slots     bigint NOT NULL CHECK (slots > 0),
    starts_by timestamptz, -- NULL: not known
    longest   interval NOT NULL,
    looked_at timestamptz NOT NULL -- a hold that is not looked at any more binds nobody
);
CREATE INDEX capacity_holds_phase ON capacity_holds (phase_id);
