-- +goose Up

-- Numbers every change of what is deployed, across deletion of an application
-- too, so that what is carried late can be told from what is new.
CREATE SEQUENCE application_revisions;

CREATE TABLE applications (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account          text NOT NULL COLLATE "C",
    lattice          text NOT NULL COLLATE "C",
    name             text NOT NULL COLLATE "C", -- lists are in the order of bytes, whatever the database's locale
    -- The newest put, and what lists show of it.
    current_version  text NOT NULL,
    description      text,
    versions         integer NOT NULL DEFAULT 1 CHECK (versions > 0),
    deployed_version text,
    revision         bigint NOT NULL DEFAULT 0, -- of what is deployed; 0: never deployed
    deployed_by      text NOT NULL DEFAULT '',  -- as the client says; '' when it does not
    deployed_at      timestamptz,
    status           json NOT NULL,             -- as it is published
    status_type      text NOT NULL,             -- what lists show of it, so that nobody reads JSON for a list
    status_message   text NOT NULL DEFAULT '',
    created_at       timestamptz NOT NULL DEFAULT now(),
    UNIQUE (account, lattice, name)
) WITH (fillfactor = 70);

CREATE TABLE application_versions (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- grows with each put: the order of versions
    application_id bigint NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
    version        text NOT NULL,
    description    text,
    manifest       json NOT NULL,  -- in its normal form, its keys in order
    scalers        json NOT NULL,  -- id, kind and name of each, in the order of a status
    facts          jsonb NOT NULL, -- what other applications need to know
    put_id         uuid NOT NULL,  -- of the request, so that a repeated one is known
    total          integer NOT NULL, -- versions after this put: the answer to a repeated one
    created_at     timestamptz NOT NULL DEFAULT now(),
    UNIQUE (application_id, version)
);
CREATE INDEX application_versions_order ON application_versions (application_id, id);
-- Who refers to a shared application; most versions refer to none.
CREATE INDEX application_versions_references ON application_versions
    USING gin ((facts -> 'references') jsonb_path_ops) WHERE facts ? 'references';

-- What is deployed is stored.
ALTER TABLE applications ADD CONSTRAINT applications_deployed_version
    FOREIGN KEY (id, deployed_version) REFERENCES application_versions (application_id, version)
    DEFERRABLE INITIALLY DEFERRED;
CREATE INDEX applications_deployed ON applications (account, lattice, name) WHERE deployed_version IS NOT NULL;

-- Who owns the ids that run in a lattice: what two applications call the same
-- they would start and stop in turns.
CREATE TABLE application_ids (
    account        text NOT NULL COLLATE "C",
    lattice        text NOT NULL COLLATE "C",
    component_id   text NOT NULL COLLATE "C",
    application_id bigint NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
    PRIMARY KEY (account, lattice, component_id)
);
CREATE INDEX application_ids_owner ON application_ids (application_id);

-- What others must be told after a commit: NATS, and Temporal. Rows of one
-- application and channel are carried one after the other, in order; carrying
-- one twice is harmless.
CREATE TABLE application_outbox (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account    text NOT NULL COLLATE "C",
    lattice    text NOT NULL COLLATE "C",
    name       text NOT NULL COLLATE "C",
    channel    text NOT NULL CHECK (channel IN ('nats', 'temporal')),
    kind       text NOT NULL CHECK (kind IN ('published', 'unpublished', 'status', 'revised')),
    revision   bigint NOT NULL,
    payload    json NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    attempts   integer NOT NULL DEFAULT 0,
    not_before timestamptz NOT NULL DEFAULT now(), -- nobody else carries it until then
    error      text NOT NULL DEFAULT ''            -- of the latest try
);
CREATE INDEX application_outbox_order ON application_outbox (account, lattice, name, channel, id);

-- Applications wait as well: for hosts, for what they depend on, for the next
-- try.
ALTER TABLE open_waits
    ALTER COLUMN mission_id DROP NOT NULL,
    ADD COLUMN application_id bigint REFERENCES applications (id) ON DELETE CASCADE,
    DROP CONSTRAINT open_waits_kind_check,
    ADD CONSTRAINT open_waits_kind_check
        CHECK (kind IN ('node', 'gateway', 'hold', 'observer', 'lattice', 'backoff', 'dependency')),
    ADD CONSTRAINT open_waits_of_one CHECK (num_nonnulls(mission_id, application_id) = 1);
CREATE INDEX open_waits_application ON open_waits (application_id);
-- There may be many now; ending one must not read them all.
CREATE INDEX open_waits_mission ON open_waits (mission_id);
CREATE INDEX open_waits_phase ON open_waits (phase_id);

-- The history of an application's waits outlives the application.
ALTER TABLE wait_history
    ALTER COLUMN mission_id DROP NOT NULL,
    ADD COLUMN account text,
    ADD COLUMN lattice text,
    ADD COLUMN application text,
    ADD COLUMN actor text NOT NULL DEFAULT '', -- who undeployed or deleted it, as the client says
    ADD CONSTRAINT wait_history_of_one CHECK (num_nonnulls(mission_id, application) = 1),
    DROP CONSTRAINT wait_history_ended_by_check,
    ADD CONSTRAINT wait_history_ended_by_check
        CHECK (ended_by IN ('placed', 'answered', 'expired', 'cancelled', 'lost', 'undeployed', 'deleted'));
CREATE INDEX wait_history_application ON wait_history (account, lattice, application, id);
