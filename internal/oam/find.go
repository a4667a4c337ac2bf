package oam

import (
	"strconv"
	"strings"
)

// oldNames are other spellings in a text of what the normal form calls so.
var oldNames = map[string]string{"instances": "replicas", "source": "source_config"}

// find returns where what a path of the normal form leads to stands in a text:
// its key or, of an item of a list, the item. Where the path leads further than
// the text, it is the last thing on the way.
func (n *node) find(path string) (*node, position) {
	at := n.at
	for path != "" {
		var step string
		step, path = firstStep(path)
		next, nextAt := n.step(step)
		if next == nil {
			break
		}
		n, at = next, nextAt
	}
	return n, at
}

// firstStep cuts a path such as a.b[0]["c"] behind its first step.
func firstStep(path string) (step, rest string) {
	path = strings.TrimPrefix(path, ".")
	if quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(path, "[")); err == nil {
		key, _ := strconv.Unquote(quoted)
		return key, path[len("[")+len(quoted)+len("]"):]
	}
	if index, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]"); ok && path[0] == '[' {
		return index, rest
	}
	if end := strings.IndexAny(path, ".["); end >= 0 {
		return path[:end], path[end:]
	}
	return path, ""
}

func (n *node) step(step string) (*node, position) {
	switch n.kind {
	case list:
		if i, err := strconv.Atoi(step); err == nil && i < len(n.items) {
			return n.items[i], n.items[i].at
		}
	case mapping:
		for _, name := range []string{step, oldNames[step]} {
			for i := len(n.keys) - 1; i >= 0; i-- {
				if n.keys[i].text == name {
					return n.items[i], n.keys[i].at
				}
			}
		}
	}
	return nil, position{}
}
