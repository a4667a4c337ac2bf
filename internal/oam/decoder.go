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
	notes  findings

	// strict: numbers and booleans are not read as strings. wadm reads most of a
	// YAML document as what it should be, but properties of components and traits
	// as what they are. JSON is always read as it is.
	strict bool
	// exact: null is no empty list or map, and nothing required may be missing.
	exact bool
	// viaJSON: of several equal keys the last one counts, others are not even looked
	// at, and numbers that are not finite are null. Elsewhere equal keys of an object
	// are an error, and of a map the last one counts.
	viaJSON bool

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
	d.notes.add(Finding{Level: Warning, Rule: rule, Path: path, Line: at.line, Column: at.column, Message: message})
}

// shape is the keys of an object, and whether others are refused or ignored.
type shape struct {
	what     string   // a noun
	keys     []string // in wadm's order
	oldKeys  []string // other names of keys
	closed   bool     // other keys are refused
	shortest int      // list of values in the order of keys that may stand for the object; noList: none may
}

const noList = -1

func (s shape) allKeys() []string { return slices.Concat(s.keys, s.oldKeys) }

func (s shape) hint() string { return "the keys are " + strings.Join(s.allKeys(), ", ") }

// index returns the place of a key among all keys, -1 when it is none of them.
func (s shape) index(key string) int {
	if i := slices.Index(s.keys, key); i >= 0 {
		return i
	}
	if i := slices.Index(s.oldKeys, key); i >= 0 {
		return len(s.keys) + i
	}
	return -1
}

// fields are the values of an object, in the order of its shape's keys.
type fields struct {
	d      *decoder
	object value
	shape  shape
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
	f := fields{d: d, object: v, shape: s, values: make([]value, len(s.keys)+len(s.oldKeys))}
	switch {
	case v.node == nil:
	case v.kind == mapping:
		d.byKey(f)
	case v.kind == list && s.shortest != noList && (d.format == JSON || d.strict):
		d.byPosition(f)
	case !d.isNothing(v):
		d.refuse(v, "a mapping", s.hint())
	}
	return f
}

func (d *decoder) byKey(f fields) {
	v, s := f.object, f.shape
	for i, k := range v.keys {
		index := s.index(k.text)
		switch {
		case index < 0 && s.closed:
			d.failAt(k.at, v.path, fmt.Sprintf("%s is no key of %s; %s", quote(k.text), s.what, s.hint()))
		case index < 0:
			d.note(RuleIgnoredKey, k.at, v.path, fmt.Sprintf("%s is no key of %s and has no effect; %s", quote(k.text), s.what, s.hint()))
		case f.values[index].node != nil && !d.viaJSON:
			d.failAt(k.at, v.path, fmt.Sprintf("the key %s is there twice; keep one of them", quote(k.text)))
		default:
			if f.values[index].node != nil {
				d.noteTwice(k, v.path)
			}
			f.values[index] = value{v.items[i], join(v.path, k.text)}
		}
	}
}

// byPosition reads a list of values in the order of the keys, as wadm does.
func (d *decoder) byPosition(f fields) {
	v, s := f.object, f.shape
	if len(v.items) < s.shortest || len(v.items) > len(s.keys) {
		d.refuse(v, "a mapping", s.hint())
		return
	}
	for i, item := range v.items {
		f.values[i] = value{item, entryIndex(v.path, i)}
	}
}

// isNothing reports whether nothing at all is written where YAML is read as what
// it should be: then it is an empty list or map.
func (d *decoder) isNothing(v value) bool {
	return v.kind == null && v.text == "" && !d.strict
}

func (d *decoder) noteTwice(k key, path string) {
	d.note(RuleDuplicateKey, k.at, path, fmt.Sprintf("the key %s is there more than once; the last one counts", quote(k.text)))
}

// refuse says what is wanted instead of v, and how to write it.
func (d *decoder) refuse(v value, wanted, hint string) {
	message := fmt.Sprintf("%s; %s is wanted", v.describe(), wanted)
	if hint != "" {
		message += "; " + hint
	}
	d.fail(v, message)
}

// get returns the value of a key, without a node when there is none.
func (f fields) get(name string) value { return f.values[f.shape.index(name)] }

// optional is get for what may be null instead of missing.
func (f fields) optional(name string) value {
	v := f.get(name)
	if v.node != nil && (v.kind == null || f.d.viaJSON && v.kind == number && jsonNumber(v.text) == nil) {
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
	if v.node == nil && f.object.node != nil {
		f.d.fail(f.object, fmt.Sprintf("the key %s of %s is missing", name, f.shape.what))
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
	hint := ""
	if v.kind == number || v.kind == boolean {
		hint = "write it in quotes"
	}
	d.refuse(v, "a string", hint)
	return ""
}

// listOf reads a list, nil when there is nothing.
func listOf[T any](d *decoder, v value, read func(*decoder, value) T) []T {
	if v.node == nil {
		return nil
	}
	if d.isNothing(v) {
		return []T{}
	}
	if v.kind != list {
		d.refuse(v, "a list", "")
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
	if d.isNothing(v) {
		return map[string]string{}
	}
	if v.kind != mapping {
		d.refuse(v, "a mapping of strings", "")
		return nil
	}
	last := d.lastOfEach(v)
	entries := make(map[string]string, len(v.items))
	for i, item := range v.items {
		k := v.keys[i]
		if _, twice := entries[k.text]; twice || last != nil && last[k.text] != i {
			d.noteTwice(k, v.path)
		}
		if last == nil || last[k.text] == i {
			entries[k.text] = d.entry(item, v.path, k.text)
		}
	}
	return entries
}

// lastOfEach returns the index of the last item of each key where others are
// not even looked at.
func (d *decoder) lastOfEach(v value) map[string]int {
	if !d.viaJSON {
		return nil
	}
	last := make(map[string]int, len(v.keys))
	for i, k := range v.keys {
		last[k.text] = i
	}
	return last
}

func (d *decoder) entry(item *node, path, name string) string {
	if item.kind == text {
		return item.text
	}
	return d.text(value{item, entryPath(path, name)})
}

// entryPath is the path to an entry of a map, whose key may be any text.
func entryPath(path, name string) string { return path + "[" + quote(name) + "]" }
