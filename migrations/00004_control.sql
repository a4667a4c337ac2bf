-- +goose Up

ALTER TABLE mission_phases
    -- A hold: stamped once, so that neither a reset nor a restart moves it, and
    -- released once.
    ADD COLUMN held_since   timestamptz,
    ADD COLUMN held_bound   timestamptz,
    ADD COLUMN released_at  timestamptz,
    ADD COLUMN released_by  text NOT NULL DEFAULT '',
    ADD COLUMN release_note text NOT NULL DEFAULT '',
    -- A back-off: when it is over, and the place in the queue that it comes back
    -- to. The phase is not in the queue meanwhile.
    ADD COLUMN retry_at     timestamptz,
    ADD COLUMN place_kept   timestamptz,
    -- The launch whose commit a rerun took over instead of running the phase.
    ADD COLUMN taken_from   integer,
    -- What a cancelled run had made, on a branch of its own.
    ADD COLUMN partial_branch text NOT NULL DEFAULT '',
    ADD COLUMN partial_commit text NOT NULL DEFAULT '',
    ADD CONSTRAINT mission_phases_backs_off
        CHECK (retry_at IS NULL OR status = 'pending' AND queued_at IS NULL);

ALTER TABLE topology_runs ADD COLUMN out_of_memory boolean NOT NULL DEFAULT false;

ALTER TABLE open_waits
    ADD COLUMN next_check timestamptz,
    ADD COLUMN attempts   bigint NOT NULL DEFAULT 0;

ALTER TABLE wait_history
    ADD COLUMN note text NOT NULL DEFAULT '', -- of a release
    DROP CONSTRAINT wait_history_ended_by_check,
    ADD CONSTRAINT wait_history_ended_by_check
        CHECK (ended_by IN ('placed', 'answered', 'expired', 'cancelled', 'lost', 'undeployed', 'deleted', 'changed', 'released', 'retried'));

-- What people did to missions and phases by hand: who, what, why.
CREATE TABLE acts (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    mission_id bigint NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    launch     integer NOT NULL,
    phase_id   bigint REFERENCES mission_phases (id) ON DELETE CASCADE, -- NULL: to the mission
    verb       text NOT NULL CHECK (verb IN ('nudge', 'cancel', 'release')),
    actor      text NOT NULL DEFAULT '',
    note       text NOT NULL DEFAULT '',
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    key        text NOT NULL UNIQUE -- of the signal, so that it is recorded once
);
CREATE INDEX acts_mission ON acts (mission_id, launch, id);

-- What was launched. The row of the mission is that of its latest draft, which
-- may never have been.
CREATE TABLE mission_launches (
    mission_id bigint NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    launch     integer NOT NULL,
    document   jsonb NOT NULL,
    actor      text NOT NULL DEFAULT '',
    gateway_id text REFERENCES gateways (id),
    branch     text NOT NULL DEFAULT '',
    base_commit text NOT NULL DEFAULT '',
    -- Of a rerun: the launch and the commit it starts from.
    rerun_of   integer,
    from_commit text NOT NULL DEFAULT '',
    status       text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'succeeded', 'failed', 'cancelled')),
    failure_code text NOT NULL DEFAULT '',
    failure      text NOT NULL DEFAULT '',
    started_at   timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz,
    PRIMARY KEY (mission_id, launch)
);
INSERT INTO mission_launches (mission_id, launch, document, actor, gateway_id, branch, base_commit, status, failure_code, failure, started_at, ended_at)
SELECT id, launch, document, actor, gateway_id, branch, base_commit, CASE status WHEN 'draft' THEN 'failed' ELSE status END,
       failure_code, failure, COALESCE(started_at, created_at), ended_at
FROM missions WHERE launch > 0;
