// Package redact takes secrets out of the output of commands, which print them by
// accident more often than not. It is no protection against a command that means
// to give a secret away: any other way to write it goes through.
package redact

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// MinBytes is the length of the shortest text that is taken out. Anything shorter
// is found in every output.
const MinBytes = 4

// Redactor replaces secrets by the names of their variables in brackets. It looks
// for each line of a value, and for the value as base64 and as JSON and URLs
// escape it. The nil Redactor replaces nothing. It is safe for concurrent use.
type Redactor struct {
	byStart map[start][]pattern // the longest first
	longest int                 // of all patterns, in bytes
}

// start is what a pattern begins with.
type start [MinBytes]byte

// pattern is a text that stands for a secret.
type pattern struct {
	text   string
	marker string
}

// New returns a Redactor for values by the names of their variables.
func New(values map[string]string) *Redactor {
	r := &Redactor{byStart: map[start][]pattern{}}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, text := range forms(values[name]) {
			if len(text) < MinBytes || seen[text] {
				continue
			}
			seen[text] = true
			at := start([]byte(text[:MinBytes]))
			r.byStart[at] = append(r.byStart[at], pattern{text, "[" + name + "]"})
			r.longest = max(r.longest, len(text))
		}
	}
	for _, patterns := range r.byStart {
		slices.SortStableFunc(patterns, func(a, b pattern) int { return cmp.Compare(len(b.text), len(a.text)) })
	}
	return r
}

// forms are the ways in which a value is printed by accident.
func forms(value string) []string {
	var forms []string
	for line := range strings.SplitSeq(value, "\n") {
		line = strings.TrimSpace(line)
		forms = append(forms, line, inJSON(line), url.QueryEscape(line), url.PathEscape(line))
	}
	value = strings.TrimSpace(value)
	forms = append(forms, inJSON(value), url.QueryEscape(value), url.PathEscape(value))
	return append(forms, inBase64(value)...)
}

func inJSON(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(text) != nil {
		return ""
	}
	return strings.Trim(b.String(), "\"\n")
}

const (
	minBase64  = 8  // characters; less is likely to be something else
	base64Line = 76 // characters, where programs break lines
)

// inBase64 are the characters that a value becomes wherever it stands in what is
// encoded: there are three ways in which three bytes become four characters.
func inBase64(value string) []string {
	if len(value) < MinBytes {
		return nil
	}
	var forms []string
	for before := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), value...))
		own := encoded[(before*8+5)/6 : (before+len(value))*8/6] // those that depend on nothing else
		forms = append(forms, own)
		for line := range slices.Chunk([]byte(own), base64Line) {
			if before == 0 && len(own) > base64Line {
				forms = append(forms, string(line))
			}
		}
	}
	for _, form := range forms {
		forms = append(forms, strings.NewReplacer("+", "-", "/", "_").Replace(form))
	}
	return slices.DeleteFunc(forms, func(form string) bool { return len(form) < minBase64 })
}

// Text returns text without secrets.
func (r *Redactor) Text(text string) string { return string(r.Line([]byte(text))) }

// Line returns a whole line without secrets. The result may be line itself.
func (r *Redactor) Line(line []byte) []byte { return r.render(line, 0, false) }

// Stream returns lines of one stream that may come in pieces. It is used by one
// goroutine.
func (r *Redactor) Stream() *Stream { return &Stream{redactor: r} }

// Stream is a stream whose lines may come in pieces.
type Stream struct {
	redactor *Redactor
	before   []byte // the end of the piece before, when its line goes on
}

// Line returns a line, or a piece of one, without secrets and without parts of
// those that go over the ends of pieces. More says that the line may go on. The
// result may be line itself.
func (s *Stream) Line(line []byte, more bool) []byte {
	if s.redactor.empty() {
		return line
	}
	text := line
	if len(s.before) > 0 {
		text = slices.Concat(s.before, line)
	}
	clean := s.redactor.render(text, len(s.before), more)
	s.before = nil
	if more {
		s.before = bytes.Clone(text[max(0, len(text)-s.redactor.longest+1):])
	}
	return clean
}

func (r *Redactor) empty() bool { return r == nil || r.longest == 0 }

// span is a part of a text that has to go.
type span struct {
	from, to int
	marker   string
}

// render returns text from the given place on, without secrets.
func (r *Redactor) render(text []byte, from int, more bool) []byte {
	if r.empty() {
		return text[from:]
	}
	var clean []byte
	for _, s := range r.spans(text, more) {
		if s.to <= from {
			continue
		}
		if s.from > from {
			clean = append(clean, text[from:s.from]...)
		}
		clean = append(clean, s.marker...)
		from = s.to
	}
	if clean == nil {
		return text[from:]
	}
	return append(clean, text[from:]...)
}

// spans finds everything that has to go, in order. Parts that overlap are one.
func (r *Redactor) spans(text []byte, more bool) []span {
	var spans []span
	for i := 0; i+MinBytes <= len(text); i++ {
		patterns, ok := r.byStart[start(text[i:i+MinBytes])]
		if !ok {
			continue
		}
		found, ok := longest(patterns, text[i:], more)
		if !ok {
			continue
		}
		found.from, found.to = i, i+found.to
		if last := len(spans) - 1; last >= 0 && found.from < spans[last].to {
			spans[last].to = max(spans[last].to, found.to)
			continue
		}
		spans = append(spans, found)
	}
	return spans
}

// longest returns the longest pattern that text begins with. When there is more
// to come after text, a pattern that may go on there counts as well.
func longest(patterns []pattern, text []byte, more bool) (span, bool) {
	for _, p := range patterns {
		switch {
		case len(p.text) <= len(text):
			if string(text[:len(p.text)]) == p.text {
				return span{to: len(p.text), marker: p.marker}, true
			}
		case more && p.text[:len(text)] == string(text):
			return span{to: len(text), marker: p.marker}, true
		}
	}
	return span{}, false
}
