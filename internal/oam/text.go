package oam

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// checkText refuses what is no text in either format, and returns the text
// without its byte order mark.
func checkText(src []byte) ([]byte, error) {
	if len(src) > MaxDocumentBytes {
		return nil, &ParseError{Message: fmt.Sprintf("the document has %d bytes; %d are allowed", len(src), MaxDocumentBytes)}
	}
	if err := checkUTF8(src); err != nil {
		return nil, err
	}
	src = bytes.TrimPrefix(src, byteOrderMark)
	if len(bytes.TrimSpace(src)) == 0 {
		return nil, &ParseError{Message: "the document is empty; a manifest is wanted"}
	}
	return src, nil
}

func checkUTF8(src []byte) error {
	if utf8.Valid(src) {
		return nil
	}
	return positionIn(src, invalidUTF8(src)).error("", "the text is not UTF-8; save it as UTF-8")
}

func invalidUTF8(src []byte) int {
	offset := 0
	for offset < len(src) {
		char, size := utf8.DecodeRune(src[offset:])
		if char == utf8.RuneError && size == 1 {
			break
		}
		offset += size
	}
	return offset
}

// position is where something stands in a text, both from 1; 0: unknown.
type position struct{ line, column int }

func positionIn(src []byte, offset int) position {
	before := src[:min(max(offset, 0), len(src))]
	begin := bytes.LastIndexByte(before, '\n') + 1
	return position{1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[begin:])}
}

func (p position) error(path, message string) *ParseError {
	return &ParseError{Line: p.line, Column: p.column, Path: path, Message: message}
}

// maxQuoted bounds what a sentence quotes of the document, in characters.
const maxQuoted = 80

func quote(text string) string {
	if utf8.RuneCountInString(text) > maxQuoted {
		text = string([]rune(text)[:maxQuoted]) + "…"
	}
	return strconv.Quote(text)
}
