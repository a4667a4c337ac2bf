package mission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Finding is one thing wrong with a document.
type Finding struct {
	File    string `json:"file"`
	Line    int    `json:"line"`              // from 1
	Column  int    `json:"column"`            // from 1
	Key     string `json:"key,omitempty"`     // such as spec.phases[1].run; empty: the whole document
	Found   string `json:"found"`             // what stands there, such as "lots"
	Problem string `json:"problem"`           // continues Found, such as: is not a quantity
	Allowed string `json:"allowed,omitempty"` // what to do, such as: write for example 512Mi
}

// String is the finding in one line: file:line:column: key: sentence.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", f.File, f.Line, f.Column)
	if f.Key != "" {
		b.WriteString(f.Key + ": ")
	}
	b.WriteString(f.Found + " " + f.Problem)
	if f.Allowed != "" {
		b.WriteString("; " + f.Allowed)
	}
	return b.String()
}

// Invalid is the error of [Parse]: everything found wrong, in document order.
type Invalid struct {
	Findings []Finding
}

// maxPrinted keeps the message of a hopeless document readable.
const maxPrinted = 100

// Error prints one finding a line, the first hundred of them.
func (e *Invalid) Error() string {
	shown := e.Findings[:min(len(e.Findings), maxPrinted)]
	lines := make([]string, 0, len(shown)+1)
	for _, f := range shown {
		lines = append(lines, f.String())
	}
	if rest := len(e.Findings) - len(shown); rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(lines, "\n")
}

func inOrder(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Key, b.Key))
	})
	return findings
}

// maxQuoted bounds what a finding quotes of the document, in characters.
const maxQuoted = 60

func quote(text string) string {
	if utf8.RuneCountInString(text) > maxQuoted {
		text = string([]rune(text)[:maxQuoted]) + "…"
	}
	return fmt.Sprintf("%q", text)
}
