-- +goose Up

-- Lattices that are or were observed. One process observes a lattice at a time;
-- each that begins takes the next epoch, and what was begun under an older one
-- is refused.
CREATE TABLE lattices (
    account        text NOT NULL COLLATE "C",
    lattice        text NOT NULL COLLATE "C",
    epoch          bigint NOT NULL DEFAULT 0,
    observer       text NOT NULL DEFAULT '', -- the engine that took the epoch
    taken_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    observed_since timestamptz,              -- when a host was seen for the first time ever; NULL: never
    hosts          integer NOT NULL DEFAULT 0, -- alive, as of checked_at
    checked_at     timestamptz,
    PRIMARY KEY (account, lattice)
);

-- What applications have made in lattices that carries no mark of them, to be
-- cleaned up when nothing wants it any more. A row lives until everything of its
-- application is gone, also when the application is deleted before that.
CREATE TABLE reconciliations (
    account    text NOT NULL COLLATE "C",
    lattice    text NOT NULL COLLATE "C",
    name       text NOT NULL COLLATE "C",
    owned      json NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (account, lattice, name)
);

-- Waits end because what was waited for came, or by the next thing to wait for.
ALTER TABLE wait_history
    DROP CONSTRAINT wait_history_ended_by_check,
    ADD CONSTRAINT wait_history_ended_by_check
        CHECK (ended_by IN ('placed', 'answered', 'expired', 'cancelled', 'lost', 'undeployed', 'deleted', 'changed'));
