-- +goose Up

-- The machines of a composed phase: name and whether it decides about the phase,
-- in order. Empty: the phase is solo.
ALTER TABLE mission_phases ADD COLUMN agents jsonb NOT NULL DEFAULT '[]';

-- The machines of a run of a composed phase, which start, hold their node and end
-- with the run.
CREATE TABLE run_agents (
    run_id        text NOT NULL REFERENCES topology_runs (id) ON DELETE CASCADE,
    ordinal       integer NOT NULL,
    name          text NOT NULL,
    machine       text NOT NULL UNIQUE,
    designated    boolean NOT NULL,
    status        text NOT NULL DEFAULT 'starting'
                  CHECK (status IN ('starting', 'running', 'succeeded', 'failed', 'stopped', 'lost')),
    step          text NOT NULL DEFAULT 'create',
    accel         text NOT NULL DEFAULT '',
    kernel        text NOT NULL DEFAULT '',
    isolation     text NOT NULL DEFAULT '',
    start_kind    text NOT NULL DEFAULT '' CHECK (start_kind IN ('', 'cold', 'snapshot')),
    start_why     text NOT NULL DEFAULT '',
    exit_code     integer,
    signal        text NOT NULL DEFAULT '',
    out_of_memory boolean NOT NULL DEFAULT false,
    collected     boolean NOT NULL DEFAULT false,
    failure_code  text NOT NULL DEFAULT '',
    failure       text NOT NULL DEFAULT '',
    ended_at      timestamptz,
    PRIMARY KEY (run_id, name)
);
