-- +goose Up

-- Nodes whose agent is of a release that does not work together with that of the
-- engine which heard it. Nothing of what such an agent says is taken but its name.
CREATE TABLE refused_agents (
    node_id  text COLLATE "C" PRIMARY KEY,
    version  text NOT NULL,
    protocol integer NOT NULL,
    code     text NOT NULL CHECK (code IN ('release_too_old', 'release_too_new')),
    reason   text NOT NULL,
    since    timestamptz NOT NULL DEFAULT clock_timestamp(),
    heard_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
