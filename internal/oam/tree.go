package oam

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// node is one value of a text, whatever its format.
type node struct {
	kind  kind
	text  string // of a scalar: what it says, without quotes
	at    position
	keys  []key   // of a mapping, one for each of its items
	items []*node // of a list or a mapping
}

type key struct {
	text string
	at   position
}

type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	list
	mapping
)

func (k kind) scalar() bool { return k < list }

// describe is the beginning of a sentence about the node.
func (n *node) describe() string {
	switch n.kind {
	case null:
		return "null stands here"
	case boolean:
		return quoteless(n.text) + " is a boolean"
	case number:
		return quoteless(n.text) + " is a number"
	case text:
		return quote(n.text) + " is a string"
	case list:
		return "a list stands here"
	default:
		return "a mapping stands here"
	}
}

func quoteless(text string) string { return strings.Trim(quote(text), `"`) }

// last returns the node under a name, the last one when there are several, nil
// when there is none.
func (n *node) last(name string) *node {
	for i := len(n.keys) - 1; i >= 0; i-- {
		if n.keys[i].text == name {
			return n.items[i]
		}
	}
	return nil
}

// plain returns the node as encoding/json would write it: mappings are maps, so
// that keys come out sorted and the last of several equal ones is kept.
func (n *node) plain() any {
	switch n.kind {
	case null:
		return nil
	case boolean:
		return strings.EqualFold(n.text, "true")
	case number:
		return jsonNumber(n.text)
	case text:
		return n.text
	case list:
		items := make([]any, len(n.items))
		for i, item := range n.items {
			items[i] = item.plain()
		}
		return items
	default:
		fields := make(map[string]any, len(n.items))
		for i, item := range n.items {
			fields[n.keys[i].text] = item.plain()
		}
		return fields
	}
}

// jsonNumber returns a number of either format as one of JSON, which has none
// for those that are not finite.
func jsonNumber(written string) any {
	if json.Valid([]byte(written)) {
		return json.Number(written)
	}
	if whole, ok := parseWhole(written); ok {
		return json.Number(whole.String())
	}
	if float, ok := parseFloat(written); ok {
		return json.Number(strconv.FormatFloat(float, 'g', -1, 64))
	}
	return nil
}

// size counts the nodes of a tree and the bytes of what they say.
type size struct{ nodes, bytes int }

func (s size) plus(other size) size { return size{s.nodes + other.nodes, s.bytes + other.bytes} }

// check refuses what is too large at a position; aliases may have made it so.
func (s size) check(at position) error {
	switch {
	case s.nodes > MaxNodes:
		return at.error("", fmt.Sprintf("the document has more than the %d values that are allowed, aliases written out", MaxNodes))
	case s.bytes > MaxDocumentBytes:
		return at.error("", fmt.Sprintf("the document's values have more than the %d bytes that are allowed, aliases written out", MaxDocumentBytes))
	default:
		return nil
	}
}

func tooDeep(at position) error {
	return at.error("", fmt.Sprintf("the document is nested more than the %d levels that are allowed", MaxDepth))
}
