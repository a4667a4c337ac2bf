-- +goose Up

-- A placement writes a run and its reservation. They name a phase and a node that the
-- same transaction has changed and holds; to check each name once more, row by row, was
-- two fifths of what a placement cost in the database. A run still depends on its phase,
-- and a reservation on its run.
--
-- The names of nodes are looked at from their other end. No node is ever deleted: what
-- names one is looked for when somebody tries. A placement cannot come between, since
-- it changes the node's row.
ALTER TABLE topology_runs DROP CONSTRAINT topology_runs_node_id_fkey;
ALTER TABLE missions DROP CONSTRAINT missions_target_node_id_fkey;

-- +goose StatementBegin
CREATE FUNCTION nodes_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM topology_runs WHERE node_id = OLD.id) OR EXISTS (SELECT 1 FROM missions WHERE target_node_id = OLD.id) THEN
        RAISE foreign_key_violation USING MESSAGE = format('node %s is named by runs or missions: retire it instead', OLD.id);
    END IF;
    RETURN OLD;
END $$;
-- +goose StatementEnd
CREATE TRIGGER nodes_named BEFORE DELETE ON nodes FOR EACH ROW EXECUTE FUNCTION nodes_named();

-- A reservation is written by the statement that writes its run, with the phase and
-- the node of that, and is known by it. One reservation for each attempt of a phase
-- follows from one run for each.
ALTER TABLE reservations
    DROP CONSTRAINT reservations_phase_id_fkey, DROP CONSTRAINT reservations_node_id_fkey,
    DROP CONSTRAINT reservations_pkey, DROP CONSTRAINT reservations_phase_id_attempt_key, ADD PRIMARY KEY (run_id);
DROP INDEX reservations_run;

-- Rows of missions are changed by every placement and every end of a phase, in a
-- column that no index has: with room in its page that touches no index.
ALTER TABLE missions SET (fillfactor = 50);
