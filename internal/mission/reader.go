package mission

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader collects findings while a document is read, so that one look at a
// document tells everything wrong with it.
type reader struct {
	file     string
	findings []Finding
	images   []value // that are not the default
}

// value is a node and the key that leads to it.
type value struct {
	*yaml.Node
	key string
}

func (r *reader) document(line int, found, problem, allowed string) {
	r.findings = append(r.findings, Finding{
		File: r.file, Line: max(line, 1), Column: 1, Found: found, Problem: problem, Allowed: allowed,
	})
}

// refuse adds a finding about v as a whole.
func (r *reader) refuse(v value, problem, allowed string) {
	r.about(v, describe(v.Node), problem, allowed)
}

func (r *reader) about(v value, found, problem, allowed string) {
	r.findings = append(r.findings, Finding{
		File: r.file, Line: v.Line, Column: v.Column, Key: v.key, Found: found, Problem: problem, Allowed: allowed,
	})
}

// object reads a mapping with a closed list of keys. What is unknown or twice
// there is left out of the result.
func (r *reader) object(v value, s shape) map[string]value {
	fields := map[string]value{}
	if !r.isMapping(v) {
		return nil
	}
	for _, entry := range r.entries(v) {
		if !s.has(entry.name) {
			r.unknown(v.key, entry, s)
			continue
		}
		fields[entry.name] = entry.value
	}
	for _, f := range s {
		if f.required != "" && !has(v.Node, f.name) && !has(v.Node, f.unless) {
			r.about(v, strconv.Quote(f.name), "is missing", f.required)
		}
	}
	return fields
}

// entry is one pair of a mapping; at is where its key stands.
type entry struct {
	name  string
	at    value
	value value
}

// entries returns the pairs of a mapping in order, each key once.
func (r *reader) entries(v value) []entry {
	first := map[string]int{}
	var entries []entry
	for i := 0; i+1 < len(v.Content); i += 2 {
		name := follow(v.Content[i])
		at := value{v.Content[i], v.key}
		switch {
		case name.Kind != yaml.ScalarNode:
			r.about(at, describe(name), "cannot be a key", "a key is a word")
			continue
		case name.Tag == "!!merge":
			r.about(at, `"<<"`, "cannot be used", "merge keys are not supported; write the keys out or use an alias for the whole value")
			continue
		}
		at.key = join(v.key, name.Value)
		if line, twice := first[name.Value]; twice {
			r.about(at, quote(name.Value), "is there twice, first on line "+strconv.Itoa(line), "keep one of them")
			continue
		}
		first[name.Value] = name.Line
		entries = append(entries, entry{name.Value, at, value{follow(v.Content[i+1]), at.key}})
	}
	return entries
}

func (r *reader) unknown(parent string, e entry, s shape) {
	allowed := "the keys are " + strings.Join(s.names(), ", ")
	if near := suggest(e.name, s.names()); near != "" {
		allowed = "did you mean " + near + "? " + allowed
	}
	e.at.key = parent
	r.about(e.at, quote(e.name), "is not a key here", allowed)
}

func (r *reader) isMapping(v value) bool {
	if v.Kind == yaml.MappingNode {
		return true
	}
	r.refuse(v, "is not a mapping", "write keys with values under it")
	return false
}

// list reads a sequence; hint says how to write one.
func (r *reader) list(v value, hint string) ([]value, bool) {
	if v.Kind != yaml.SequenceNode {
		r.refuse(v, "is not a list", hint)
		return nil, false
	}
	items := make([]value, len(v.Content))
	for i, n := range v.Content {
		items[i] = value{follow(n), v.key + "[" + strconv.Itoa(i) + "]"}
	}
	return items, true
}

// text reads a string. A number or a truth value must be quoted, because YAML
// would change it: 010 is eight and 1.20 is 1.2.
func (r *reader) text(v value) (string, bool) {
	if v.Kind == yaml.ScalarNode && v.ShortTag() == "!!str" {
		return v.Value, true
	}
	switch {
	case v.Kind != yaml.ScalarNode || isNull(v.Node):
		r.refuse(v, "is not text", "write a string")
	default:
		r.refuse(v, "is not text", "write "+quote(v.Value)+" with the quotes")
	}
	return "", false
}

// texts reads a mapping of strings with free keys.
func (r *reader) texts(v value) []entry {
	if !r.isMapping(v) {
		return nil
	}
	return r.entries(v)
}

// oneOf reads a string from a closed list.
func (r *reader) oneOf(v value, allowed ...string) string {
	text, ok := r.text(v)
	if !ok {
		return ""
	}
	for _, a := range allowed {
		if text == a {
			return text
		}
	}
	r.refuse(v, "is not allowed", "write "+strings.Join(allowed, " or "))
	return ""
}

// whole reads a decimal integer within bounds.
func (r *reader) whole(v value, low, high int) int {
	n, err := strconv.Atoi(v.Value)
	if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!int" || err != nil || n < low || n > high {
		r.refuse(v, "is not allowed", "write a whole number from "+strconv.Itoa(low)+" to "+strconv.Itoa(high))
		return 0
	}
	return n
}

// has reports whether a mapping has a key, whatever its value.
func has(mapping *yaml.Node, name string) bool {
	if name == "" {
		return false
	}
	for i := 0; i < len(mapping.Content); i += 2 {
		if follow(mapping.Content[i]).Value == name {
			return true
		}
	}
	return false
}

func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// describe names what stands at a node.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case n.ShortTag() == "!!str":
		return quote(n.Value)
	case n.Value == "":
		return "an empty value with the tag " + quote(n.ShortTag())
	default:
		return strings.Trim(quote(n.Value), `"`)
	}
}

func join(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "." + name
}
