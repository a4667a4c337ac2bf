package config

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// A Fault is one setting that is refused.
type Fault struct {
	Key    string // full name, such as fleet.turn, or the name of an unknown variable
	Value  string // as it was written, quoted; without passwords; empty when the key itself is refused
	Origin string // file:line, environment variable, flag, or "default"
	Want   string // what is allowed
}

func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.Key)
	if f.Value != "" {
		b.WriteString(" = " + f.Value)
	}
	if f.Origin != "" {
		b.WriteString(" (" + f.Origin + ")")
	}
	return b.String() + ": " + f.Want
}

// Faults is the error of Load when settings are refused: all of them at once.
type Faults []Fault

func (f Faults) Error() string {
	if len(f) == 1 {
		return "setting refused: " + f[0].String()
	}
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = "\n  " + fault.String()
	}
	return fmt.Sprintf("%d settings refused:%s", len(f), strings.Join(lines, ""))
}

// shown is a value as it may be printed: URLs lose what can hold a password.
func shown(name, text string) string {
	if name == "wadm.urls" {
		return "(not shown)" // a mapping of URLs, of which each may have a password
	}
	if name != "nats.url" && name != "postgres.url" {
		return strconv.Quote(text)
	}
	urls := strings.Split(text, ",")
	for i, one := range urls {
		u, err := url.Parse(one)
		if err != nil || u.Scheme == "" || u.Host == "" {
			return "(not shown)"
		}
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		urls[i] = u.String()
	}
	return strconv.Quote(strings.Join(urls, ","))
}
