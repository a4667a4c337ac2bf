package oam

import "fmt"

// Level says what a finding means.
type Level string

// The levels.
const (
	Error   Level = "error"   // the manifest cannot be accepted
	Warning Level = "warning" // it can, but is probably not what was meant
)

// Finding is one broken rule.
type Finding struct {
	Level   Level  `json:"level"`
	Rule    string `json:"rule"`             // one of the Rule constants
	Path    string `json:"path,omitempty"`   // in the normal form, such as spec.components[0].name
	Line    int    `json:"line,omitempty"`   // from 1; 0: unknown
	Column  int    `json:"column,omitempty"` // in characters from 1; 0: unknown
	Message string `json:"message"`
}

// String is the finding in one line.
func (f Finding) String() string {
	where := (&ParseError{Line: f.Line, Column: f.Column, Path: f.Path, Message: f.Message}).Error()
	return fmt.Sprintf("%s [%s] %s", f.Level, f.Rule, where)
}

// FirstError returns the first finding that is an error.
func FirstError(findings []Finding) (Finding, bool) {
	for _, f := range findings {
		if f.Level == Error {
			return f, true
		}
	}
	return Finding{}, false
}
