package lattice

import (
	"fmt"
	"strings"
)

// maxToken is the length in bytes up to which a name may be part of a subject.
const maxToken = 512

// InvalidName is a name that cannot be part of a NATS subject, so that no host
// can be asked about it.
type InvalidName struct{ What, Name string }

func (e *InvalidName) Error() string {
	return fmt.Sprintf("%s %q cannot be part of a NATS subject: it must be 1 to %d bytes without spaces, dots, *, > and control characters", e.What, clip(e.Name), maxToken)
}

// token returns an error unless a name is a single token of a subject.
func token(what, name string) error {
	if name == "" || len(name) > maxToken || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r == '.' || r == '*' || r == '>'
	}) {
		return &InvalidName{what, name}
	}
	return nil
}

// prefix is the first token of a multi-tenant lattice's subjects.
func (c Client) prefix() string {
	if c.Account == "" {
		return ""
	}
	return c.Account + "."
}

func (c Client) control(suffix string) string {
	return c.prefix() + "wasmbus.ctl.v1." + c.Lattice + "." + suffix
}

// events is the subject of everything that hosts of the lattice publish.
func (c Client) events() string { return c.prefix() + "wasmbus.evt." + c.Lattice + ".>" }

// maxWords is the length in bytes up to which the words of a host are kept:
// they end up in statuses and histories.
const maxWords = 2 << 10

// clip shortens what somebody else wrote.
func clip(s string) string {
	if len(s) <= maxWords {
		return s
	}
	return strings.ToValidUTF8(s[:maxWords], "") + "…"
}
