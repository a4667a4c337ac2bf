-- +goose Up

-- By what the images are known that the node keeps, so that placement prefers it
-- for phases that start from them.
ALTER TABLE nodes ADD COLUMN images text[] NOT NULL DEFAULT '{}';

-- The image that commands found as their root directory, with its digest. Empty:
-- the backend's own.
ALTER TABLE topology_runs ADD COLUMN image text NOT NULL DEFAULT '';
ALTER TABLE run_agents ADD COLUMN image text NOT NULL DEFAULT '';
