package oam

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readYAML reads a text that is one YAML document.
func readYAML(src []byte) (*node, error) {
	if err := checkIndicators(src); err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(inParsersVersion(src)))
	var document, second yaml.Node
	if err := decodeYAML(decoder, &document); err != nil && !errors.Is(err, io.EOF) {
		return nil, yamlSyntax(err)
	}
	if document.Kind == 0 {
		return nil, &ParseError{Message: "the document is empty; a manifest is wanted"}
	}
	switch err := decodeYAML(decoder, &second); {
	case err == nil:
		return nil, position{second.Line, second.Column}.error("", "a second YAML document begins here; one document is wanted")
	case !errors.Is(err, io.EOF):
		return nil, yamlSyntax(err)
	}
	c := converter{anchored: map[*yaml.Node]*converted{}}
	root, err := c.convert(document.Content[0], 1)
	if err != nil {
		return nil, err
	}
	return root.node, nil
}

// inParsersVersion returns the text for a parser that insists on version 1.1,
// though it reads most of 1.2.
func inParsersVersion(src []byte) []byte {
	const stated, accepted = "%YAML 1.2", "%YAML 1.1"
	if !bytes.HasPrefix(src, []byte(stated)) {
		return src
	}
	return slices.Concat([]byte(accepted), src[len(stated):])
}

// checkIndicators refuses a text that would take the parser more memory than its
// size justifies: every value but the first comes behind one of few characters.
func checkIndicators(src []byte) error {
	indicators := 0
	for _, char := range src {
		switch char {
		case ',', ':', '-', '?', '[', '{', '\n':
			indicators++
		}
	}
	if indicators > 2*MaxNodes {
		return &ParseError{Message: fmt.Sprintf("the document may have more than the %d values that are allowed", MaxNodes)}
	}
	return nil
}

// decodeYAML reads one document. The parser must not take the process down with
// it, whatever it is fed.
func decodeYAML(decoder *yaml.Decoder, into *yaml.Node) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("yaml: %v", fault)
		}
	}()
	return decoder.Decode(into)
}

var yamlError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

func yamlSyntax(err error) error {
	var at position
	reason := err.Error()
	if m := yamlError.FindStringSubmatch(reason); m != nil {
		at.line, _ = strconv.Atoi(m[1])
		reason = m[2]
	}
	if strings.Contains(reason, "exceeded max depth") {
		return tooDeep(at)
	}
	return at.error("", "the text is not YAML: "+reason)
}

// converter makes a tree of what the parser returns. An alias and its anchor
// share one node, so that nothing is ever written out; sizes are counted as if
// it were.
type converter struct {
	anchored map[*yaml.Node]*converted // nil while being converted
}

type converted struct {
	*node
	size   size
	height int // lists and mappings inside one another
}

func (c *converter) convert(n *yaml.Node, depth int) (converted, error) {
	if n.Kind == yaml.AliasNode {
		return c.follow(n, depth)
	}
	at := position{n.Line, n.Column}
	if n.Anchor != "" {
		c.anchored[n] = nil
	}
	result, err := c.content(n, at, depth)
	if err != nil {
		return converted{}, err
	}
	if n.Anchor != "" {
		kept := result
		c.anchored[n] = &kept
	}
	return result, result.size.check(at)
}

func (c *converter) follow(n *yaml.Node, depth int) (converted, error) {
	at := position{n.Line, n.Column}
	target := c.anchored[n.Alias]
	if target == nil {
		return converted{}, at.error("", "the alias *"+n.Value+" stands inside what it refers to")
	}
	if depth+target.height-1 > MaxDepth {
		return converted{}, tooDeep(at)
	}
	return *target, nil
}

func (c *converter) content(n *yaml.Node, at position, depth int) (converted, error) {
	if n.Kind == yaml.ScalarNode {
		return converted{&node{kind: scalarKind(n), text: n.Value, at: at}, size{1, len(n.Value)}, 0}, nil
	}
	if depth > MaxDepth {
		return converted{}, tooDeep(at)
	}
	full := converted{&node{kind: list, at: at}, size{nodes: 1}, 1}
	if n.Kind == yaml.MappingNode {
		full.kind = mapping
		full.keys = make([]key, 0, len(n.Content)/2)
	}
	full.items = make([]*node, 0, len(n.Content)-cap(full.keys))
	for i, part := range n.Content {
		child, err := c.convert(part, depth+1)
		switch {
		case err != nil:
			return full, err
		case full.kind == mapping && i%2 == 0:
			err = full.addKey(child, position{part.Line, part.Column})
		default:
			err = full.addItem(child)
		}
		if err != nil {
			return full, err
		}
	}
	return full, nil
}

func (full *converted) addKey(k converted, at position) error {
	if !k.kind.scalar() {
		return at.error("", k.describe()+"; a string is wanted as a key")
	}
	full.keys = append(full.keys, key{k.text, at})
	full.size.bytes += len(k.text)
	return nil
}

func (full *converted) addItem(item converted) error {
	full.items = append(full.items, item.node)
	full.size = full.size.plus(item.size)
	full.height = max(full.height, 1+item.height)
	return full.size.check(item.at)
}

// scalarKind is the kind of a scalar by its tag or, without one, by what it
// says. Tags that are not of YAML itself mean nothing here.
func scalarKind(n *yaml.Node) kind {
	if n.Style&yaml.TaggedStyle != 0 {
		switch n.Tag {
		case "!!str", "!!binary", "!!timestamp":
			return text
		case "!!null", "!!bool", "!!int", "!!float":
			return plainKind(n.Value)
		}
	}
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return text
	}
	return plainKind(n.Value)
}
