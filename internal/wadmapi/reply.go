package wadmapi

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"tidewait/internal/wadm"
)

// encode writes what is replied or published.
func encode(v any) ([]byte, error) {
	b, err := wadm.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("encode a reply: %w", err)
	}
	return b, nil
}

// maxMessage is the most bytes of a message.
const maxMessage = 4096

// failure is the error object. For the two replies whose arrays clients want to
// see even then, it has an empty one. It always fits.
func (r *request) failure(message string) []byte {
	for message = cut(message, maxMessage); ; message = cut(message, len(message)/2) {
		// A struct of text cannot fail to encode.
		body, _ := encode(wadm.Error{Result: wadm.ResultError, Message: message})
		switch {
		case r.op == wadm.OpGet && !r.named:
			body = append(body[:len(body)-1], `,"models":[]}`...)
		case r.op == wadm.OpVersions:
			body = append(body[:len(body)-1], `,"versions":[]}`...)
		}
		if len(body) <= r.limit || message == "" {
			return body
		}
	}
}

// fitting encodes a reply with as many of the warnings as fit: what is stored
// already must not be answered by an error because of them.
func fitting(limit int, warnings []wadm.Warning, reply func([]wadm.Warning) any) ([]byte, error) {
	for keep := len(warnings); ; keep /= 2 {
		shown := warnings[:keep:keep]
		if left := len(warnings) - keep; left > 0 {
			shown = append(shown, wadm.Warning{
				Rule: "trimmed", Message: fmt.Sprintf("%s left out: the reply would have been too large", count(left, "more warning")),
			})
		}
		body, err := encode(reply(shown))
		if err != nil || len(body) <= limit || keep == 0 {
			return body, err
		}
	}
}

const ellipsis = "…"

// cut shortens text to at most so many bytes, between characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	if most < len(ellipsis) {
		return ""
	}
	end := most - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// count is a number with a noun in singular or plural.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// maxNamed is how many things a message names.
const maxNamed = 10

// enumerate names the first things and counts the rest.
func enumerate(things []string) string {
	if len(things) <= maxNamed {
		return strings.Join(things, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(things[:maxNamed], ", "), len(things)-maxNamed)
}

// appendText appends text as a JSON string.
func appendText(b []byte, text string) []byte {
	if plain(text) {
		return append(append(append(b, '"'), text...), '"')
	}
	quoted, _ := encode(text) // a string cannot fail to encode
	return append(b, quoted...)
}

// plain reports whether text stands in JSON as it is.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// appendOptional appends text as a JSON string, or null.
func appendOptional(b []byte, text *string) []byte {
	if text == nil {
		return append(b, "null"...)
	}
	return appendText(b, *text)
}
