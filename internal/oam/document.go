package oam

import (
	"bytes"
	"fmt"
	"strings"
)

// Format is how a document is written.
type Format int

// The formats.
const (
	Detect Format = iota // YAML or, where the text is no YAML, JSON
	JSON
	YAML
)

func (f Format) String() string {
	switch f {
	case JSON:
		return "JSON"
	case YAML:
		return "YAML"
	default:
		return "YAML or JSON"
	}
}

// Limits of a document. What wadm accepts in a message of NATS' default size is
// within them, unless most of it is one long list of tiny values.
const (
	MaxDocumentBytes = 4 << 20 // of the text, and of all values once aliases are written out
	MaxDepth         = 128     // lists and mappings inside one another; wadm's own limit
	MaxNodes         = 200_000 // values, once aliases are written out
)

// Document is a manifest and where in the text its parts stand.
type Document struct {
	Manifest Manifest

	tree  *node    // nil when the manifest was not read from a text
	notes findings // what reading it noticed
}

// ParseError says why a text is no manifest.
type ParseError struct {
	Line    int    // from 1; 0: unknown
	Column  int    // in characters from 1; 0: unknown
	Path    string // such as spec.components[0].type; empty: the whole document
	Message string // what was found, what is wrong with it, what is allowed
}

// Error is one sentence: where and what.
func (e *ParseError) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d", e.Line)
		if e.Column > 0 {
			fmt.Fprintf(&b, ", column %d", e.Column)
		}
		b.WriteString(": ")
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Parse reads a manifest. It is strict and lenient where wadm is, and lenient
// where wadm forgets or dies: annotations and requirements may be missing, null
// is an empty list or map, an empty image is none. The error is a [*ParseError];
// of a text in no known format, it is about the one that was evidently meant.
//
// A manifest that can be read may still break rules: see [Document.Validate].
func Parse(src []byte, format Format) (*Document, error) {
	src, err := checkText(src)
	if err != nil {
		return nil, err
	}
	if format != Detect {
		return parseAs(src, format)
	}
	if !mayBeJSON(src) {
		return parseAs(src, YAML)
	}
	// What is valid as JSON means the same as YAML, and is read faster.
	document, jsonErr := parseAs(src, JSON)
	if jsonErr == nil {
		return document, nil
	}
	document, yamlErr := parseAs(src, YAML)
	if yamlErr != nil && isMeantAsJSON(src) {
		return nil, jsonErr
	}
	return document, yamlErr
}

func mayBeJSON(src []byte) bool {
	first := bytes.TrimLeft(src, jsonSpace)[0]
	return first == '{' || first == '['
}

// isMeantAsJSON looks at how the first value in a text in brackets begins:
// people do not quote keys in YAML.
func isMeantAsJSON(src []byte) bool {
	inside := bytes.TrimLeft(bytes.TrimLeft(src, jsonSpace)[1:], jsonSpace)
	return len(inside) == 0 || strings.IndexByte(`"{}[]`, inside[0]) >= 0
}

const jsonSpace = " \t\r\n"

func parseAs(src []byte, format Format) (*Document, error) {
	read := readYAML
	if format == JSON {
		read = readJSON
	}
	tree, err := read(src)
	if err != nil {
		return nil, err
	}
	d := decoder{format: format}
	manifest := d.manifest(value{node: tree})
	if d.err != nil {
		return nil, d.err
	}
	return &Document{Manifest: manifest, tree: tree, notes: d.notes}, nil
}
