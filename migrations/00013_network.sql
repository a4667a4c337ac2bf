-- +goose Up

-- Whether the machines of a composed phase can reach each other on a node. An
-- agent says so with its next heartbeat.
ALTER TABLE node_backends ADD COLUMN network boolean NOT NULL DEFAULT true;
