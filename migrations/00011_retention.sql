-- +goose Up

-- What has ended is removed after a configured time, a few rows at a time. These
-- find the rows, and keep the removal of a launch from reading whole tables.
CREATE INDEX mission_launches_ended ON mission_launches (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX wait_history_ended ON wait_history (ended_at);
CREATE INDEX acts_at ON acts (at);
CREATE INDEX acts_phase ON acts (phase_id);
CREATE INDEX reservations_run ON reservations (run_id);
