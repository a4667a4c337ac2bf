-- +goose Up

-- Who stored a version of an application is one of the things that people do.
ALTER TABLE acts
    DROP CONSTRAINT acts_verb_check,
    ADD CONSTRAINT acts_verb_check CHECK (CASE
        WHEN mission_id IS NOT NULL THEN verb IN ('nudge', 'cancel', 'release')
        WHEN node_id IS NOT NULL THEN verb IN ('cordon', 'uncordon', 'drain', 'undrain', 'retire', 'unretire')
        ELSE verb IN ('put', 'deploy', 'undeploy', 'delete', 'nudge') END);
