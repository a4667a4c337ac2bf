-- +goose Up

-- What people did by hand, to missions and phases, to nodes and to applications:
-- who, what, why and by which door. What was done to an application outlives it.
ALTER TABLE acts
    ALTER COLUMN mission_id DROP NOT NULL,
    ALTER COLUMN launch DROP NOT NULL,
    ALTER COLUMN key SET DEFAULT gen_random_uuid()::text,
    ADD COLUMN node_id     text REFERENCES nodes (id) ON DELETE CASCADE,
    ADD COLUMN account     text COLLATE "C",
    ADD COLUMN lattice     text COLLATE "C",
    ADD COLUMN application text COLLATE "C",
    ADD COLUMN version     text, -- of the application, where the act was about one
    ADD COLUMN via         text NOT NULL DEFAULT 'temporal' CHECK (via IN ('temporal', 'nats', 'wadm')),
    DROP CONSTRAINT acts_verb_check,
    ADD CONSTRAINT acts_of_one CHECK (num_nonnulls(mission_id, node_id, application) = 1),
    ADD CONSTRAINT acts_of_a_launch CHECK ((mission_id IS NULL) = (launch IS NULL)),
    ADD CONSTRAINT acts_of_a_lattice CHECK (num_nonnulls(account, lattice, application) IN (0, 3)),
    ADD CONSTRAINT acts_verb_check CHECK (CASE
        WHEN mission_id IS NOT NULL THEN verb IN ('nudge', 'cancel', 'release')
        WHEN node_id IS NOT NULL THEN verb IN ('cordon', 'uncordon', 'drain', 'undrain', 'retire', 'unretire')
        ELSE verb IN ('deploy', 'undeploy', 'delete', 'nudge') END);
CREATE INDEX acts_node ON acts (node_id, id) WHERE node_id IS NOT NULL;
CREATE INDEX acts_application ON acts (account, lattice, application, id) WHERE application IS NOT NULL;
