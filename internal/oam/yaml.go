package oam

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// YAML returns the normal form as YAML: block style, keys in the order of JSON.
func (m Manifest) YAML() ([]byte, error) {
	src, err := m.JSON()
	if err != nil {
		return nil, err
	}
	tree, err := readKeptJSON(src)
	if err != nil {
		return nil, fmt.Errorf("write the manifest as YAML: %w", err)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(tree.yaml()), encoder.Close()); err != nil {
		return nil, fmt.Errorf("write the manifest as YAML: %w", err)
	}
	return out.Bytes(), nil
}

func (n *node) yaml() *yaml.Node {
	switch n.kind {
	case list:
		out := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range n.items {
			out.Content = append(out.Content, item.yaml())
		}
		return out
	case mapping:
		out := &yaml.Node{Kind: yaml.MappingNode}
		for i, item := range n.items {
			out.Content = append(out.Content, yamlString(n.keys[i].text), item.yaml())
		}
		return out
	case text:
		return yamlString(n.text)
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: n.text}
	}
}

// yamlString writes a string such that every reader takes it for that one.
func yamlString(said string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: said, Style: yamlStyle(said)}
}

// yamlStyle leaves the choice to the library, or writes lines as lines, only
// where nothing about the string is unusual.
func yamlStyle(said string) yaml.Style {
	lines := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
	for _, line := range lines {
		if line != strings.TrimSpace(line) || strings.ContainsFunc(line, func(char rune) bool { return !unicode.IsPrint(char) }) {
			return yaml.DoubleQuotedStyle
		}
	}
	switch {
	case lines[0] == "" || lines[len(lines)-1] == "":
		return yaml.DoubleQuotedStyle
	case strings.Contains(said, "\n"):
		return yaml.LiteralStyle
	case plainKind(said) != text || isOldBoolean(said):
		return yaml.DoubleQuotedStyle
	default:
		return 0
	}
}

// isOldBoolean reports whether readers of YAML 1.1 take the word for a boolean.
func isOldBoolean(said string) bool {
	switch strings.ToLower(said) {
	case "y", "yes", "on", "n", "no", "off":
		return true
	default:
		return false
	}
}
