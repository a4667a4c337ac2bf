package negctl

// Sabotage takes one safety out of the product, to show that the controls that
// guard it can fail. It works on the disposable stack of a run alone: either its
// database is changed, or variants of the programs are built and run there.
type Sabotage struct {
	Name   string   `json:"name"`
	What   string   `json:"what"`   // is taken out
	Guards []string `json:"guards"` // ids of the controls that must fail then, and no others

	sql  string // executed in every database of the stack
	edit *edit  // of the source
}

// Sabotages lists all of them.
func Sabotages() []Sabotage {
	return []Sabotage{
		{
			Name: "drop-coalesce", What: "the stamp of the first refusal is written anew at every look", Guards: []string{"3-full"},
			sql: `
CREATE FUNCTION sabotage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.capacity_blocked_since := clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER sabotage BEFORE UPDATE ON mission_phases FOR EACH ROW
    WHEN (OLD.capacity_blocked_since IS NOT NULL AND NEW.capacity_blocked_since IS NOT NULL) EXECUTE FUNCTION sabotage()`,
		},
		{
			Name: "drop-head-reservation", What: "nothing is held for the head of the line", Guards: []string{"3-held"},
			edit: &edit{
				file: "internal/capacity/pass.go",
				old:  "		if w.hold == nil {\n			w.hold = w.keep(g, item.ID)",
				now:  "		if w.hold == nil && item.ID < 0 {\n			w.hold = w.keep(g, item.ID)",
			},
		},
		{
			Name: "drop-check", What: "the database has no CHECK constraints", Guards: []string{"9"},
			sql: `
DO $$ DECLARE c record; BEGIN
    FOR c IN SELECT conrelid::regclass AS tab, conname FROM pg_constraint
        WHERE contype = 'c' AND connamespace = 'public'::regnamespace LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.tab, c.conname);
    END LOOP;
END $$`,
		},
		{
			Name: "drop-notify", What: "nobody is told that a phase was placed by an event", Guards: []string{"5-event"},
			sql: `
CREATE FUNCTION sabotage() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER sabotage BEFORE INSERT ON outbox FOR EACH ROW WHEN (NEW.signal = 'placed') EXECUTE FUNCTION sabotage()`,
		},
		{
			Name: "retry-without-second-look", What: "a look whose node changed meanwhile is not taken again", Guards: []string{"3-busy"},
			edit: &edit{file: "internal/store/store.go", old: "const maxTxTries = 5", now: "const maxTxTries = 1"},
		},
	}
}

// Built reports whether the sabotage needs variants of the programs.
func (s Sabotage) Built() bool { return s.edit != nil }
