-- +goose Up

-- The public key that a run's secrets were sealed to. A run has one.
ALTER TABLE topology_runs ADD COLUMN secrets_key bytea;
