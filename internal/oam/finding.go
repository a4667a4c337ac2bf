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

// maxFindings bounds how many findings of each level are kept, since a hopeless
// document may have as many as it has values.
const maxFindings = 1000

// findings are collected in order.
type findings struct {
	kept    []Finding
	counts  map[Level]int // among kept
	leftOut int
}

// hasRoom reports whether another finding of a level would be kept.
func (f *findings) hasRoom(level Level) bool { return f.counts[level] < maxFindings }

func (f *findings) add(one Finding) {
	if !f.hasRoom(one.Level) {
		f.leftOut++
		return
	}
	if f.counts == nil {
		f.counts = map[Level]int{}
	}
	f.counts[one.Level]++
	f.kept = append(f.kept, one)
}

func (f *findings) addAll(others findings) {
	for _, one := range others.kept {
		f.add(one)
	}
	f.leftOut += others.leftOut
}

// all returns what was kept, and says what was not.
func (f *findings) all() []Finding {
	if f.leftOut == 0 {
		return f.kept
	}
	return append(f.kept, Finding{
		Level: Warning, Rule: RuleMoreFindings, Message: fmt.Sprintf("%d more findings are left out", f.leftOut),
	})
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
