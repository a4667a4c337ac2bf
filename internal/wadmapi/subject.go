package wadmapi

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tidewait/internal/ledger"
	"tidewait/internal/wadm"
)

// scheme says how the subjects of requests are built.
type scheme struct {
	prefix      string // without dots or spaces around it
	multitenant bool   // an account's token stands before the prefix
}

// newScheme trims what people leave around a prefix.
func newScheme(prefix string, multitenant bool) (scheme, error) {
	trimmed := strings.Trim(strings.TrimSpace(prefix), ".")
	if trimmed == "" {
		return scheme{}, fmt.Errorf("wadm.api_prefix %q names no subject: want tokens separated by dots, such as %s",
			prefix, wadm.DefaultPrefix)
	}
	return scheme{prefix: trimmed, multitenant: multitenant}, nil
}

// pattern is the subject that all requests match.
func (s scheme) pattern() string {
	if s.multitenant {
		return "*." + s.prefix + ".>"
	}
	return s.prefix + ".>"
}

// target is what a subject asks for.
type target struct {
	key   ledger.AppKey // the name is empty unless named
	op    wadm.Operation
	named bool
}

// parse reads a subject. Its error begins with what clients look for: "Invalid
// subject", when the tokens cannot be those of a request, or "Unsupported
// subject", when they are of no request that exists.
func (s scheme) parse(subject string) (target, error) {
	account, rest := ledger.DefaultAccount, subject
	if s.multitenant {
		account, rest, _ = strings.Cut(subject, ".")
	}
	rest, ok := strings.CutPrefix(rest, s.prefix+".")
	if !ok {
		return target{}, invalid(subject, "it does not begin with the prefix "+s.prefix)
	}
	tokens := strings.Split(rest, ".")
	if len(tokens) < 3 {
		return target{}, invalid(subject, "want a lattice, the word model and an operation behind the prefix")
	}
	if len(tokens) > 4 {
		return target{}, invalid(subject, "there are too many tokens; names of applications have letters, digits, dashes and underscores only")
	}
	t := target{key: ledger.AppKey{Account: account, Lattice: tokens[0]}, op: wadm.Operation(tokens[2])}
	if len(tokens) == 4 {
		t.key.Name, t.named = tokens[3], true
	}
	if _, known := handlers[route{t.op, t.named}]; !known || tokens[1] != "model" {
		return target{}, refusef("Unsupported subject: %s", subject)
	}
	for _, err := range []error{
		checkAccount(account), checkToken("lattice", t.key.Lattice), checkText("name", t.key.Name),
	} {
		if err != nil {
			return target{}, invalid(subject, err.Error())
		}
	}
	return t, nil
}

func invalid(subject, why string) error {
	return refusef("Invalid subject: %s: %s", subject, why)
}

// reserved are first tokens of subjects that NATS keeps for itself: no stream
// would take what is published for such an account.
var reserved = []string{"$JS", "$JSC", "$NRG", "$SYS"}

func checkAccount(account string) error {
	if slices.Contains(reserved, account) {
		return fmt.Errorf("NATS keeps %s for itself: it cannot be an account", account)
	}
	return checkToken("account", account)
}

// checkToken refuses what cannot be a literal token of the subjects that
// statuses and events are published on.
func checkToken(what, token string) error {
	if token == "*" || token == ">" {
		return fmt.Errorf("the %s is the wildcard %s: name one", what, token)
	}
	return checkText(what, token)
}

// maxText is the most bytes of a name, in a subject or elsewhere.
const maxText = 253

// checkText refuses what cannot be the name of anything, and could not be
// stored.
func checkText(what, text string) error {
	switch {
	case !utf8.ValidString(text):
		return fmt.Errorf("the %s is not valid UTF-8", what)
	case len(text) > maxText:
		return fmt.Errorf("the %s has %d bytes, and may have %d", what, len(text), maxText)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("the %s has control characters", what)
	}
	return nil
}
