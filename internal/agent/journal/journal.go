// Package journal keeps what an agent knows of its runs in files, so that the next
// agent of the node can go on with them. A file is written before the machine of
// its run is made, and removed when nobody can ask for the run any more. No secret
// is ever in one.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tidewait/internal/boot"
	"tidewait/internal/vm"
	"tidewait/internal/wholefile"
	"tidewait/workflows"
)

// Entry is what is known of a run.
type Entry struct {
	Input workflows.ExecuteRunInput `json:"input"`
	Step  string                    `json:"step"` // that was begun last
	// BootID and EndsAt say when the run's turn is over: EndsAt after that boot of
	// the host.
	BootID string        `json:"bootId"`
	EndsAt time.Duration `json:"endsAt"` // nanoseconds
	// Info is what the machine is, once it has its files.
	Info vm.Info `json:"info,omitzero"`
	// Images are the digests of the images that the machine uses, by their names.
	Images map[string]string `json:"images,omitempty"`
	// Result is how the run ended, once it has; its machine is of no use then.
	Result *workflows.ExecuteRunResult `json:"result,omitempty"`
}

// Run is the id of the run.
func (e Entry) Run() string { return e.Input.Machine.RunID }

// Left is how much of the turn is left; negative: it is over.
func (e Entry) Left() time.Duration { return e.EndsAt - boot.Now() }

// Journal is a directory with the runs of one node. It is safe for concurrent use
// on different runs.
type Journal struct{ dir string }

// Open uses a directory, and makes it when it is not there.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the journal of the node's runs: %w", err)
	}
	return &Journal{dir}, nil
}

const suffix = ".json"

// Write records what is known of a run. An agent that is killed meanwhile leaves
// what was there before. Nothing is forced to the disk: when the host goes down
// the machines do too.
func (j *Journal) Write(e Entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write the journal of run %s: %w", e.Run(), err)
	}
	if err := wholefile.Replace(j.name(e.Run()), b); err != nil {
		return fmt.Errorf("write the journal of run %s: %w", e.Run(), err)
	}
	return nil
}

// Remove forgets a run. One that is not there is success.
func (j *Journal) Remove(run string) error {
	if err := os.Remove(j.name(run)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the journal of run %s: %w", run, err)
	}
	return nil
}

// Read returns all runs, by id, and removes and counts what is none: what was
// being written when the agent or the host ended, or what nobody can read.
func (j *Journal) Read() (runs map[string]Entry, unreadable int64, err error) {
	files, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, 0, fmt.Errorf("read the journal of the node's runs: %w", err)
	}
	runs = map[string]Entry{}
	for _, f := range files {
		name := filepath.Join(j.dir, f.Name())
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, 0, fmt.Errorf("read the journal of the node's runs: %w", err)
		}
		e, err := Decode(b)
		if err == nil && j.name(e.Run()) == name {
			runs[e.Run()] = e
			continue
		}
		if !strings.HasSuffix(name, wholefile.Draft) {
			unreadable++
		}
		if err := os.Remove(name); err != nil {
			return nil, 0, fmt.Errorf("remove what is no journal of a run: %w", err)
		}
	}
	return runs, unreadable, nil
}

// name is the file of a run. Ids are made of what Tidewait gives out; of any other
// the file is that of no run.
func (j *Journal) name(run string) string {
	return filepath.Join(j.dir, filepath.Base(filepath.Clean("/"+run))+suffix)
}

// steps are those that a run takes.
var steps = []string{"create", "inject", "run", "collect", "destroy"}

// Decode reads an entry.
func Decode(b []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(b, &e); err != nil {
		return Entry{}, err
	}
	switch {
	case e.Run() == "" || len(e.Run()) > 512:
		return Entry{}, fmt.Errorf("its run id has %d bytes", len(e.Run()))
	case !slices.Contains(steps, e.Step):
		return Entry{}, fmt.Errorf("%.40q is no step of a run", e.Step)
	case e.EndsAt < 0:
		return Entry{}, errors.New("its turn ended before the host began")
	case len(e.Input.Secrets) > 0 || len(e.Input.Agents) > 0:
		return Entry{}, errors.New("runs with secrets or several machines are in no journal")
	}
	return e, nil
}
