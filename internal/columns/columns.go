// Package columns measures text as terminals show it: most characters take one
// column, those of East Asia and emoji two, and marks that combine with the one
// before take none. It is pure.
package columns

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// OfRune is how many columns a character takes: 0, 1 or 2. Where a terminal joins
// several into one, as it may with emoji, it takes fewer than they do together.
func OfRune(r rune) int {
	switch {
	case r >= ' ' && r < 0x7f:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cc, unicode.Cf):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Of is how many columns a text takes on one line.
func Of(text string) int {
	n := 0
	for _, r := range text {
		n += OfRune(r)
	}
	return n
}

// Cut shortens a text to so many columns, and marks that it did with one of them.
func Cut(text string, most int) string {
	if Of(text) <= most {
		return text
	}
	end, n := 0, 0
	for i, r := range text {
		if n += OfRune(r); n > most-1 {
			break
		}
		end = i + utf8.RuneLen(r)
	}
	return text[:end] + "…"
}
