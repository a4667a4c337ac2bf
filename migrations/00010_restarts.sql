-- +goose Up

-- What an agent process found when it started, as of its latest heartbeat: runs that
-- an earlier process left and that wait to be gone on with, those that could not be
-- gone on with and why, and what nothing should have left behind.
ALTER TABLE nodes
    ADD COLUMN adopted text[] NOT NULL DEFAULT '{}',
    ADD COLUMN given_up jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN leaks jsonb NOT NULL DEFAULT '{}',
    -- Reservations of ended runs that were released because no machine was there.
    ADD COLUMN orphaned bigint NOT NULL DEFAULT 0;
