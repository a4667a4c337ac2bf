-- +goose Up

-- A node's agent says what the machine has; reservations take from it. The
-- CHECK constraints are the last line of defence: whatever the code does, a
-- node cannot be booked beyond its total.
CREATE TABLE nodes (
    id               text PRIMARY KEY,
    -- What a person decided. Whether the agent is heard is a matter of
    -- heartbeat_at and is judged when read.
    admin_state      text NOT NULL DEFAULT 'ready'
                     CHECK (admin_state IN ('ready', 'cordoned', 'draining', 'drained', 'retired')),
    state_reason     text NOT NULL DEFAULT '',
    state_actor      text NOT NULL DEFAULT '',
    state_since      timestamptz NOT NULL DEFAULT now(),
    drain_deadline   timestamptz,
    arch             text NOT NULL,
    labels           jsonb NOT NULL DEFAULT '{}',
    version          text NOT NULL DEFAULT '',
    boot_id          text NOT NULL DEFAULT '',
    cpu_total        bigint NOT NULL CHECK (cpu_total >= 0),
    memory_total     bigint NOT NULL CHECK (memory_total >= 0),
    disk_total       bigint NOT NULL CHECK (disk_total >= 0),
    slots_total      bigint NOT NULL CHECK (slots_total >= 0),
    cpu_reserved     bigint NOT NULL DEFAULT 0 CHECK (cpu_reserved BETWEEN 0 AND cpu_total),
    memory_reserved  bigint NOT NULL DEFAULT 0 CHECK (memory_reserved BETWEEN 0 AND memory_total),
    disk_reserved    bigint NOT NULL DEFAULT 0 CHECK (disk_reserved BETWEEN 0 AND disk_total),
    slots_reserved   bigint NOT NULL DEFAULT 0 CHECK (slots_reserved BETWEEN 0 AND slots_total),
    starting         bigint NOT NULL DEFAULT 0 CHECK (starting >= 0),
    start_limit      bigint NOT NULL DEFAULT 0 CHECK (start_limit >= 0),
    capacity_version bigint NOT NULL DEFAULT 0,
    registered_at    timestamptz NOT NULL DEFAULT now(),
    heartbeat_at     timestamptz NOT NULL DEFAULT now(),
    -- The runs the agent named in its latest heartbeat.
    running          text[] NOT NULL DEFAULT '{}',
    -- The transaction that changed the row last, so that a reader who knows the
    -- fleet reads only what changed since.
    changed_by       xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (fillfactor = 50);

-- +goose StatementBegin
CREATE FUNCTION nodes_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.changed_by := pg_current_xact_id();
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER nodes_changed BEFORE UPDATE ON nodes FOR EACH ROW EXECUTE FUNCTION nodes_changed();

CREATE TABLE node_backends (
    node_id     text NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    backend     text NOT NULL,
    ok          boolean NOT NULL,
    why         text NOT NULL DEFAULT '',
    accel       text NOT NULL DEFAULT '',
    kernel      text NOT NULL DEFAULT '',
    isolation   text NOT NULL DEFAULT '',
    enforced    boolean NOT NULL DEFAULT false,
    cpu_over    bigint NOT NULL DEFAULT 0,
    memory_over bigint NOT NULL DEFAULT 0,
    disk_over   bigint NOT NULL DEFAULT 0,
    boot_ms     bigint NOT NULL DEFAULT 0,
    probed_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (node_id, backend)
);

CREATE TABLE gateways (
    id            text PRIMARY KEY,
    version       text NOT NULL DEFAULT '',
    registered_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE missions (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account        text NOT NULL DEFAULT 'default',
    name           text NOT NULL,
    status         text NOT NULL CHECK (status IN ('draft', 'running', 'succeeded', 'failed', 'cancelled')),
    launch         integer NOT NULL DEFAULT 0,
    priority       integer NOT NULL DEFAULT 50,
    document       jsonb NOT NULL,
    workflow_run   text NOT NULL DEFAULT '',
    target_node_id text REFERENCES nodes (id),
    gateway_id     text REFERENCES gateways (id),
    branch         text NOT NULL DEFAULT '',
    base_commit    text NOT NULL DEFAULT '',
    failure_code   text NOT NULL DEFAULT '',
    failure        text NOT NULL DEFAULT '',
    actor          text NOT NULL DEFAULT '',
    created_at     timestamptz NOT NULL DEFAULT now(),
    started_at     timestamptz,
    ended_at       timestamptz,
    UNIQUE (account, name)
);
CREATE INDEX missions_running ON missions (id) WHERE status = 'running';

CREATE TABLE mission_phases (
    id                     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    mission_id             bigint NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    launch                 integer NOT NULL,
    ordinal                integer NOT NULL,
    name                   text NOT NULL,
    status                 text NOT NULL DEFAULT 'pending'
                           CHECK (status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
    attempt                integer NOT NULL DEFAULT 1,
    backend                text NOT NULL,
    demand                 jsonb NOT NULL,
    turn                   interval NOT NULL CHECK (turn > interval '0'),
    max_wait               interval NOT NULL CHECK (max_wait > interval '0'),
    -- The place in the queue: the first time the phase asked for a node. Kept
    -- when a run is lost, so that a phase placed again does not queue again.
    queued_at              timestamptz,
    -- Why a phase that looks idle is idle. The first is stamped once, at the
    -- first refusal, and bounds the wait; the second follows the cause. Both
    -- are cleared when the phase is placed or ends.
    capacity_blocked_since timestamptz,
    capacity_note          text,
    commit_sha             text NOT NULL DEFAULT '',
    failure_code           text NOT NULL DEFAULT '',
    failure                text NOT NULL DEFAULT '',
    started_at             timestamptz,
    ended_at               timestamptz,
    UNIQUE (mission_id, launch, ordinal),
    UNIQUE (mission_id, launch, name),
    CHECK ((capacity_blocked_since IS NULL) = (capacity_note IS NULL)),
    CHECK (status = 'pending' OR capacity_blocked_since IS NULL)
) WITH (fillfactor = 70);
CREATE INDEX mission_phases_queue ON mission_phases (backend, queued_at, id)
    WHERE status = 'pending' AND queued_at IS NOT NULL;

CREATE TABLE topology_runs (
    id           text PRIMARY KEY,
    phase_id     bigint NOT NULL REFERENCES mission_phases (id) ON DELETE CASCADE,
    attempt      integer NOT NULL,
    node_id      text NOT NULL REFERENCES nodes (id),
    status       text NOT NULL DEFAULT 'starting'
                 CHECK (status IN ('starting', 'running', 'succeeded', 'failed', 'cancelled', 'lost')),
    step         text NOT NULL DEFAULT 'create',
    accel        text NOT NULL DEFAULT '',
    kernel       text NOT NULL DEFAULT '',
    isolation    text NOT NULL DEFAULT '',
    exit_code    integer,
    signal       text NOT NULL DEFAULT '',
    failure_code text NOT NULL DEFAULT '',
    failure      text NOT NULL DEFAULT '',
    started_at   timestamptz NOT NULL DEFAULT now(),
    -- When its activity was lost; what the agent says after that decides.
    suspected_at timestamptz,
    ended_at     timestamptz,
    UNIQUE (phase_id, attempt)
);

CREATE TABLE reservations (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    phase_id    bigint NOT NULL REFERENCES mission_phases (id) ON DELETE CASCADE,
    attempt     integer NOT NULL,
    run_id      text NOT NULL REFERENCES topology_runs (id) ON DELETE CASCADE,
    node_id     text NOT NULL REFERENCES nodes (id),
    cpu         bigint NOT NULL CHECK (cpu >= 0),
    memory      bigint NOT NULL CHECK (memory >= 0),
    disk        bigint NOT NULL CHECK (disk >= 0),
    slots       bigint NOT NULL CHECK (slots > 0),
    starting    bigint NOT NULL DEFAULT 0 CHECK (starting >= 0),
    ends_by     timestamptz NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    released_at timestamptz,
    UNIQUE (phase_id, attempt)
);
CREATE UNIQUE INDEX reservations_one_per_phase ON reservations (phase_id) WHERE released_at IS NULL;
CREATE INDEX reservations_held ON reservations (node_id, ends_by) WHERE released_at IS NULL;

-- One row for each phase that waits for capacity, in the words of the latest
-- look at it.
CREATE TABLE capacity_waits (
    phase_id   bigint PRIMARY KEY REFERENCES mission_phases (id) ON DELETE CASCADE,
    pool       text NOT NULL,
    since      timestamptz NOT NULL,
    bound      timestamptz NOT NULL,
    code       text NOT NULL,
    position   integer NOT NULL DEFAULT 0,
    refusal    jsonb NOT NULL DEFAULT '{}',
    checked_at timestamptz NOT NULL,
    tries      jsonb NOT NULL DEFAULT '{}',
    attempts   bigint NOT NULL DEFAULT 1
) WITH (fillfactor = 50);
CREATE INDEX capacity_waits_order ON capacity_waits (since, phase_id);

-- Waits that are not for capacity: for a node's or a gateway's answer. Workflows
-- declare them; one workflow has one at a time.
CREATE TABLE open_waits (
    workflow_id text PRIMARY KEY,
    mission_id  bigint NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    phase_id    bigint REFERENCES mission_phases (id) ON DELETE CASCADE, -- NULL: the mission itself waits
    kind        text NOT NULL CHECK (kind IN ('node', 'gateway')),
    code        text NOT NULL,
    reason      text NOT NULL,
    since       timestamptz NOT NULL,
    bound       timestamptz,
    checked_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE wait_history (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    mission_id bigint NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    phase_id   bigint REFERENCES mission_phases (id) ON DELETE CASCADE, -- NULL: the mission itself waited
    kind       text NOT NULL,
    code       text NOT NULL,
    reason     text NOT NULL,
    since      timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    ended_by   text NOT NULL CHECK (ended_by IN ('placed', 'answered', 'expired', 'cancelled', 'lost')),
    woken_by   text NOT NULL DEFAULT '',
    attempts   bigint NOT NULL DEFAULT 0
);
CREATE INDEX wait_history_phase ON wait_history (phase_id, id);

-- What Temporal must be told after a commit. A dispatcher carries each row and
-- deletes it; carrying one twice is harmless.
CREATE TABLE outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workflow_id text NOT NULL,
    signal      text NOT NULL,
    payload     jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT now(),
    attempts    integer NOT NULL DEFAULT 0
);
