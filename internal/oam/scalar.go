package oam

import (
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// plainKind says what an unquoted YAML scalar is. The rules are those of YAML
// 1.2 as serde_yaml reads it, not those of YAML 1.1: yes, 1_000, 0777 and
// 2024-01-31 are strings.
func plainKind(written string) kind {
	switch written {
	case "", "~", "null", "Null", "NULL":
		return null
	case "true", "True", "TRUE", "false", "False", "FALSE":
		return boolean
	}
	if _, ok := parseWhole(written); ok {
		return number
	}
	if isFloat(written) {
		return number
	}
	return text
}

var (
	wholeNumber = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*|0x[0-9A-Fa-f]+|0o[0-7]+|0b[01]+)$`)
	floatNumber = regexp.MustCompile(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$`)
	onlyDigits  = regexp.MustCompile(`^[-+]?0[0-9]+$`)
)

// parseWhole reads a whole number of YAML or JSON.
func parseWhole(written string) (*big.Int, bool) {
	if !startsNumber(written) || !wholeNumber.MatchString(written) {
		return nil, false
	}
	return new(big.Int).SetString(strings.TrimPrefix(written, "+"), 0)
}

// parseFloat reads any finite number that JSON or YAML writes with digits.
func parseFloat(written string) (float64, bool) {
	if !startsNumber(written) || !floatNumber.MatchString(written) || onlyDigits.MatchString(written) {
		return 0, false
	}
	float, err := strconv.ParseFloat(written, 64)
	return float, err == nil && !math.IsInf(float, 0)
}

func isFloat(written string) bool {
	switch written {
	case ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF":
		return true
	}
	_, ok := parseFloat(written)
	return ok
}

// startsNumber keeps most strings away from the expressions.
func startsNumber(written string) bool {
	return written != "" && strings.IndexByte("+-.0123456789", written[0]) >= 0
}
