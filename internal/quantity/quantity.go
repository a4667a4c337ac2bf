// Package quantity reads amounts of memory and disk as people write them.
package quantity

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxBytes keeps every quantity countable in bytes too.
const maxBytes = math.MaxInt64

// kib is how many KiB one of each unit holds.
var kib = map[string]int64{"Ki": 1, "Mi": 1 << 10, "Gi": 1 << 20, "Ti": 1 << 30}

// MiB reads a whole number with a binary unit, such as 512Mi, 8Gi or 1Ti, and
// returns it in MiB. Signs, fractions, spaces, decimal units, amounts that are
// not a whole number of MiB and amounts of 8 EiB or more are errors that show the
// text and what is allowed.
func MiB(text string) (int64, error) {
	if len(text) < 3 {
		return 0, malformed(text)
	}
	digits, unit := text[:len(text)-2], text[len(text)-2:]
	perUnit, known := kib[unit]
	if !known || strings.Trim(digits, "0123456789") != "" {
		return 0, malformed(text)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > maxBytes>>10/perUnit {
		return 0, fmt.Errorf("quantity %q is too large: the largest is 8388607Ti", text)
	}
	if n*perUnit%1024 != 0 {
		return 0, fmt.Errorf("quantity %q is not a whole number of MiB: write it in Mi, such as 512Mi", text)
	}
	return n * perUnit / 1024, nil
}

func malformed(text string) error {
	return fmt.Errorf("quantity %q is not a whole number followed by Ki, Mi, Gi or Ti, such as 512Mi or 8Gi", text)
}
