package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"tidewait/internal/mission"
	"tidewait/internal/render"
)

// document is a mission file that was read and found valid.
type document struct {
	name    string // of the file, as given; "-" is standard input
	mission mission.Mission
}

// readDocument reads and checks one file, or standard input for "-".
func (c *cli) readDocument(name string) (document, error) {
	src, err := c.readSource(name)
	if err != nil {
		return document{}, usage("cannot read the mission document: %w", err)
	}
	shown := name
	if name == "-" {
		shown = "<stdin>"
	}
	m, err := mission.Parse(shown, src)
	return document{name: name, mission: m}, err
}

// readSource reads no more than it takes to see that a document is too long.
func (c *cli) readSource(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(c.in, mission.MaxDocumentBytes+1))
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, mission.MaxDocumentBytes+1))
}

// workspace returns the document's workspace with local paths made absolute
// against the directory of its file, or the working directory for standard input.
func (d document) workspace() (mission.Workspace, error) {
	dir := "."
	if d.name != "-" {
		dir = filepath.Dir(d.name)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return mission.Workspace{}, fmt.Errorf("cannot find the directory of %s: %w", d.name, err)
	}
	return d.mission.Spec.Workspace.Resolve(dir), nil
}

// verdict is what validate found about one file.
type verdict struct {
	File     string            `json:"file"`
	Valid    bool              `json:"valid"`
	Mission  *mission.Mission  `json:"mission,omitempty"` // with every default filled in
	Findings []mission.Finding `json:"findings,omitempty"`
}

func validateCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check mission documents without launching anything",
		Long: `Check mission documents without launching anything and without any service.
A FILE of - is standard input. Each finding is one line: file:line:column: key: sentence.`,
		Example: "  tidewait mission validate nightly-port.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return c.validate(args) },
	}
}

func (c *cli) validate(names []string) error {
	var verdicts []verdict
	all := &mission.Invalid{}
	for _, name := range names {
		d, err := c.readDocument(name)
		var invalid *mission.Invalid
		switch {
		case errors.As(err, &invalid):
			all.Findings = append(all.Findings, invalid.Findings...)
			verdicts = append(verdicts, verdict{File: name, Findings: invalid.Findings})
		case err != nil:
			return err
		default:
			verdicts = append(verdicts, verdict{File: name, Valid: true, Mission: &d.mission})
		}
	}
	err := c.print(verdicts, time.Time{}, func(render.Options) string { return validText(verdicts) })
	if err == nil && len(all.Findings) > 0 {
		err = all
	}
	return err
}

func validText(verdicts []verdict) string {
	text := ""
	for _, v := range verdicts {
		if v.Valid {
			text += fmt.Sprintf("%s: mission %s is valid, %s on %s\n", v.File, v.Mission.Name, phaseCount(*v.Mission), v.Mission.Spec.Backend)
		}
	}
	return text
}

func phaseCount(m mission.Mission) string {
	if len(m.Spec.Phases) == 1 {
		return "1 phase"
	}
	return fmt.Sprintf("%d phases", len(m.Spec.Phases))
}
