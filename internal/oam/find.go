package oam

import (
	"strconv"
	"strings"
)

// find returns what a path of the normal form leads to in a text, and where it
// stands: its key or, of an item of a list, the item. Where the path leads
// further than the text, it is the last thing on the way.
func (n *node) find(path string) (*node, position) {
	at := n.at
	for path != "" {
		step, rest := firstStep(path)
		next, nextAt := n.child(step)
		if next == nil || next.kind.scalar() && rest != "" {
			if old, oldAt, oldRest := n.oldChild(step, rest); old != nil {
				next, nextAt, rest = old, oldAt, oldRest
			}
		}
		if next == nil {
			break
		}
		n, at, path = next, nextAt, rest
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

func (n *node) child(step string) (*node, position) {
	switch n.kind {
	case list:
		if i, err := strconv.Atoi(step); err == nil && i < len(n.items) {
			return n.items[i], n.items[i].at
		}
	case mapping:
		for i := len(n.keys) - 1; i >= 0; i-- {
			if n.keys[i].text == step {
				return n.items[i], n.keys[i].at
			}
		}
	}
	return nil, position{}
}

// oldChild is child for what stands in an old place, and the rest of the path
// from there.
func (n *node) oldChild(step, rest string) (*node, position, string) {
	name := map[string]string{"instances": "replicas", "source": "source_config", "target": "target_config"}[step]
	if name != "replicas" {
		inConfig, ok := strings.CutPrefix(rest, ".config")
		if !ok {
			return nil, position{}, ""
		}
		rest = inConfig
	}
	child, at := n.child(name)
	return child, at, rest
}
