package oam

import (
	"fmt"
	"slices"
	"strings"
)

// decoder makes values of a tree. It keeps the first thing that is wrong and
// reads on to no effect.
type decoder struct {
	format Format
	err    *ParseError
	notes  []Finding

	// strict: numbers and booleans are not read as strings. wadm reads most of a
	// YAML document as what it should be, but properties of components and traits
	// as what they are. JSON is always read as it is.
	strict bool
	// exact: null is no empty list or map, and nothing required may be missing.
	exact bool
	// lastWins: of several equal keys of an object the last one counts. Elsewhere
	// they are an error. In maps the last one always counts.
	lastWins bool

	outOfRange bool // err is about a number that is one, but too large
}

// value is a node and the path to it.
type value struct {
	*node // nil: there is nothing
	path  string
}

func (d *decoder) fail(v value, message string) {
	d.failAt(v.at, v.path, message)
}

func (d *decoder) failAt(at position, path, message string) {
	if d.err == nil {
		d.err = at.error(path, message)
	}
}

func (d *decoder) note(rule string, at position, path, message string) {
	d.notes = append(d.notes, Finding{
		Level: Warning, Rule: rule, Path: path, Line: at.line, Column: at.column, Message: message,
	})
}

// shape is the keys of an object, and whether others are refused or ignored.
type shape struct {
	what   string // a noun
	keys   []string
	closed bool
}

func keysOf(s shape) string { return strings.Join(s.keys, ", ") }

// fields are the values of an object by key.
type fields struct {
	d      *decoder
	object value
	what   string
	known  []string
	values []value
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// object reads a mapping with known keys.
func (d *decoder) object(v value, s shape) fields {
	f := fields{d: d, object: v, what: s.what, known: s.keys, values: make([]value, len(s.keys))}
	if v.node == nil || v.kind != mapping {
		d.refuse(v, "a mapping with the keys of "+s.what)
		return f
	}
	for i, k := range v.keys {
		index := slices.Index(s.keys, k.text)
		switch {
		case index < 0 && s.closed:
			d.failAt(k.at, v.path, fmt.Sprintf("%s is no key of %s; the keys are %s", quote(k.text), s.what, keysOf(s)))
		case index < 0:
			d.note(RuleIgnoredKey, k.at, v.path, fmt.Sprintf("%s is no key of %s and has no effect; the keys are %s", quote(k.text), s.what, keysOf(s)))
		case f.values[index].node != nil && !d.lastWins:
			d.failAt(k.at, v.path, fmt.Sprintf("the key %s is there twice; keep one of them", quote(k.text)))
		default:
			if f.values[index].node != nil {
				d.noteTwice(k, v.path)
			}
			f.values[index] = value{v.items[i], join(v.path, k.text)}
		}
	}
	return f
}

func (d *decoder) noteTwice(k key, path string) {
	d.note(RuleDuplicateKey, k.at, path, fmt.Sprintf("the key %s is there more than once; the last one counts", quote(k.text)))
}

// refuse says what was wanted instead of v.
func (d *decoder) refuse(v value, wanted string) {
	if v.node == nil {
		return // what is missing was reported where it is missing
	}
	found := v.describe()
	if v.kind == null || !v.kind.scalar() {
		found += " stands here"
	}
	d.fail(v, found+"; wanted is "+wanted)
}

// get returns the value of a key, without a node when there is none.
func (f fields) get(name string) value {
	return f.values[slices.Index(f.known, name)]
}

// optional is get for what may be null instead of missing.
func (f fields) optional(name string) value {
	v := f.get(name)
	if v.node != nil && v.kind == null {
		v.node = nil
	}
	return v
}

// lenient is get for lists and maps that are empty when missing or, unless it
// matters, null.
func (f fields) lenient(name string) value {
	if f.d.exact {
		return f.get(name)
	}
	return f.optional(name)
}

// required is get for what must be there, null or not.
func (f fields) required(name string) value {
	v := f.get(name)
	if v.node == nil && f.object.node != nil && f.object.kind == mapping {
		f.d.fail(f.object, fmt.Sprintf("the key %s of %s is missing", name, f.what))
	}
	return v
}

// text reads a string.
func (d *decoder) text(v value) string {
	if v.node == nil {
		return ""
	}
	if v.kind == text || d.format == YAML && !d.strict && v.kind.scalar() {
		return v.text
	}
	wanted := "a string"
	if d.format == YAML && (v.kind == number || v.kind == boolean) {
		wanted += "; write it in quotes"
	}
	d.refuse(v, wanted)
	return ""
}

// list reads a list, nil when there is nothing.
func listOf[T any](d *decoder, v value, read func(*decoder, value) T) []T {
	if v.node == nil {
		return nil
	}
	if v.kind != list {
		d.refuse(v, "a list")
		return nil
	}
	items := make([]T, 0, len(v.items))
	for i, item := range v.items {
		items = append(items, read(d, value{item, entryIndex(v.path, i)}))
		if d.err != nil {
			break
		}
	}
	return items
}

// texts reads a map of strings, nil when there is nothing.
func (d *decoder) texts(v value) map[string]string {
	if v.node == nil {
		return nil
	}
	if v.kind != mapping {
		d.refuse(v, "a mapping of strings")
		return nil
	}
	entries := make(map[string]string, len(v.items))
	for i, item := range v.items {
		k := v.keys[i]
		if _, twice := entries[k.text]; twice {
			d.noteTwice(k, v.path)
		}
		entries[k.text] = d.entry(item, v.path, k.text)
	}
	return entries
}

func (d *decoder) entry(item *node, path, name string) string {
	if item.kind == text {
		return item.text
	}
	return d.text(value{item, entryPath(path, name)})
}

// entryPath is the path to an entry of a map, whose key may be any text.
func entryPath(path, name string) string { return path + "[" + quote(name) + "]" }
