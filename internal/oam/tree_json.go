package oam

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// readJSON reads a text that is one JSON value, by the rules of JSON alone.
func readJSON(src []byte) (*node, error) {
	return scan(&scanner{src: src, line: 1, column: 1})
}

// readKeptJSON reads what was written by this package. It may be larger than the
// text it came from was allowed to be.
func readKeptJSON(src []byte) (*node, error) {
	if err := checkUTF8(src); err != nil {
		return nil, err
	}
	return scan(&scanner{src: src, line: 1, column: 1, anySize: true})
}

func scan(s *scanner) (*node, error) {
	var whole json.RawMessage
	if err := json.Unmarshal(s.src, &whole); err != nil {
		return nil, jsonSyntax(s.src, err)
	}
	return s.value(1)
}

func jsonSyntax(src []byte, err error) error {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return &ParseError{Message: "the text is not JSON: " + err.Error()}
	}
	if strings.Contains(syntax.Error(), "max depth") {
		return tooDeep(positionIn(src, int(syntax.Offset)-1))
	}
	return positionIn(src, int(syntax.Offset)-1).error("", "the text is not JSON: "+syntax.Error())
}

// scanner makes a tree of a text that is known to be valid JSON.
type scanner struct {
	src    []byte
	offset int // of what is read next

	marked, line, column int // an offset that was passed and its position
	size                 size
	anySize              bool
}

// at returns the position of what is read next.
func (s *scanner) at() position {
	passed := s.src[s.marked:s.offset]
	if lines := bytes.Count(passed, []byte("\n")); lines > 0 {
		s.line += lines
		s.column = 1
		passed = passed[bytes.LastIndexByte(passed, '\n')+1:]
	}
	s.column += utf8.RuneCount(passed)
	s.marked = s.offset
	return position{s.line, s.column}
}

// skip passes white space and the separators between values.
func (s *scanner) skip() {
	for s.offset < len(s.src) && strings.IndexByte(jsonSpace+",:", s.src[s.offset]) >= 0 {
		s.offset++
	}
}

func (s *scanner) value(depth int) (*node, error) {
	s.skip()
	at := s.at()
	s.size.nodes++
	if err := s.size.check(at); err != nil && !s.anySize {
		return nil, err
	}
	switch first := s.src[s.offset]; first {
	case '{', '[':
		if depth > MaxDepth {
			return nil, tooDeep(at)
		}
		s.offset++
		return s.collection(first, at, depth)
	case '"':
		said, err := s.string(at)
		return &node{kind: text, text: said, at: at}, err
	default:
		return s.word(at)
	}
}

func (s *scanner) collection(opened byte, at position, depth int) (*node, error) {
	const usual = 4 // most have no more items
	n := &node{kind: list, at: at, items: make([]*node, 0, usual)}
	if opened == '{' {
		n.kind = mapping
		n.keys = make([]key, 0, usual)
	}
	for {
		s.skip()
		if last := s.src[s.offset]; last == '}' || last == ']' {
			s.offset++
			return n, nil
		}
		if n.kind == mapping {
			at := s.at()
			name, err := s.string(at)
			if err != nil {
				return nil, err
			}
			n.keys = append(n.keys, key{name, at})
		}
		item, err := s.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
}

// string reads a string.
func (s *scanner) string(at position) (string, error) {
	begin := s.offset
	escaped := false
	for s.offset++; s.src[s.offset] != '"'; s.offset++ {
		if s.src[s.offset] == '\\' {
			escaped = true
			s.offset++
		}
	}
	s.offset++
	written := s.src[begin:s.offset]
	said := string(written[1 : len(written)-1])
	if escaped {
		if halfSurrogate(written) {
			return "", at.error("", "the string has half a surrogate pair, which is no character")
		}
		if err := json.Unmarshal(written, &said); err != nil {
			return "", at.error("", "the text is not JSON: "+err.Error())
		}
	}
	s.size.bytes += len(said)
	return said, nil
}

// halfSurrogate reports whether a valid JSON string escapes one half of a
// surrogate pair without the other. encoding/json would read a replacement
// character there.
func halfSurrogate(written []byte) bool {
	for i := 0; i < len(written); i++ {
		if written[i] != '\\' {
			continue
		}
		i++
		if written[i] != 'u' {
			continue
		}
		unit := codeUnit(written[i+1:])
		i += 4
		if !utf16.IsSurrogate(unit) {
			continue
		}
		rest := written[i+1:]
		if !bytes.HasPrefix(rest, []byte(`\u`)) || utf16.DecodeRune(unit, codeUnit(rest[2:])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// codeUnit reads the four hexadecimal digits of an escape.
func codeUnit(digits []byte) rune {
	unit, err := strconv.ParseUint(string(digits[:4]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(unit)
}

// word reads null, a boolean or a number.
func (s *scanner) word(at position) (*node, error) {
	begin := s.offset
	for s.offset < len(s.src) && strings.IndexByte(jsonSpace+",:]}", s.src[s.offset]) < 0 {
		s.offset++
	}
	n := &node{kind: number, text: string(s.src[begin:s.offset]), at: at}
	s.size.bytes += len(n.text)
	switch n.text {
	case "null":
		n.kind = null
	case "true", "false":
		n.kind = boolean
	default:
		if _, err := strconv.ParseFloat(n.text, 64); err != nil {
			return nil, at.error("", fmt.Sprintf("the number %s is out of range", quoteless(n.text)))
		}
	}
	return n, nil
}
