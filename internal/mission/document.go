package mission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Limits on a document, checked before its content is looked at.
const (
	MaxDocumentBytes = 256 << 10
	maxDepth         = 20     // a valid document needs 8
	maxNodes         = 200000 // with every alias written out
)

// load reads the one document in src, or adds why there is not one and returns nil.
func (r *reader) load(src []byte) *yaml.Node {
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	switch {
	case len(src) > MaxDocumentBytes:
		r.document(1, "the file", fmt.Sprintf("has %d bytes", len(src)), fmt.Sprintf("a mission has at most %d", MaxDocumentBytes))
		return nil
	case !utf8.Valid(src):
		r.document(lineOfInvalidUTF8(src), "the file", "is not UTF-8 text", "save it as UTF-8")
		return nil
	case json.Valid(src):
		src = asYAML(src)
	}

	decoder := yaml.NewDecoder(bytes.NewReader(src))
	var first, second yaml.Node
	err := decode(decoder, &first)
	if errors.Is(err, io.EOF) || err == nil && isEmpty(&first) {
		r.document(1, "the file", "is empty", "write a mission that starts with apiVersion: "+APIVersion)
		return nil
	}
	if err != nil {
		r.syntax(err)
		return nil
	}
	if err := decode(decoder, &second); err == nil {
		r.document(second.Line, "the file", "holds more than one document", "write each mission into its own file")
		return nil
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	root := first.Content[0]
	if !r.bounded(root) {
		return nil
	}
	return root
}

// jsonEscape is one escape in a JSON string, surrogate pairs as one.
var jsonEscape = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\.`)

// outsideYAML are the characters whose meaning in YAML is not that in JSON: tabs
// between values, and line breaks that JSON does not take for such.
var outsideYAML = strings.NewReplacer("\t", " ", "\u0085", `\u0085`, "\u2028", `\u2028`, "\u2029", `\u2029`)

// asYAML writes what YAML does not take in JSON in a way it takes. Lines stay
// where they are.
func asYAML(src []byte) []byte {
	src = []byte(outsideYAML.Replace(string(src)))
	return jsonEscape.ReplaceAllFunc(src, func(escape []byte) []byte {
		if len(escape) == 2 && escape[1] != '/' {
			return escape
		}
		var text string
		if err := json.Unmarshal(append(append([]byte{'"'}, escape...), '"'), &text); err != nil {
			return escape
		}
		return []byte(text)
	})
}

// decode is decoder.Decode, whose parser panics on a few malformed documents.
func decode(decoder *yaml.Decoder, into *yaml.Node) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("yaml: %v", problem)
		}
	}()
	return decoder.Decode(into)
}

func isEmpty(document *yaml.Node) bool {
	return len(document.Content) == 0 || isNull(document.Content[0])
}

func lineOfInvalidUTF8(src []byte) int {
	line := 1
	for len(src) > 0 {
		char, size := utf8.DecodeRune(src)
		if char == utf8.RuneError && size == 1 {
			break
		}
		if char == '\n' {
			line++
		}
		src = src[size:]
	}
	return line
}

var yamlError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

func (r *reader) syntax(err error) {
	line, problem := 1, err.Error()
	if m := yamlError.FindStringSubmatch(problem); m != nil {
		problem = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	r.document(line, "the text", "is not YAML: "+problem, "")
}

// bounded follows every alias and reports whether the whole document is small
// and flat enough to be read. An alias to something around itself is too deep.
func (r *reader) bounded(root *yaml.Node) bool {
	nodes := 0
	var walk func(n *yaml.Node, depth int) bool
	walk = func(n *yaml.Node, depth int) bool {
		nodes++
		if depth > maxDepth {
			r.document(n.Line, "the document", fmt.Sprintf("is nested more than %d deep", maxDepth), "a mission needs 8")
			return false
		}
		if nodes > maxNodes {
			r.document(n.Line, "the document", fmt.Sprintf("has more than %d values once its aliases are written out", maxNodes), "write fewer aliases")
			return false
		}
		if n.Kind == yaml.AliasNode {
			return walk(n.Alias, depth+1)
		}
		for _, child := range n.Content {
			if !walk(child, depth+1) {
				return false
			}
		}
		return true
	}
	return walk(root, 1)
}
