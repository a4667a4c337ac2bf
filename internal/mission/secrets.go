package mission

import (
	"regexp"
	"strconv"
	"strings"
)

// MaxSecrets is how many secrets one command may have.
const MaxSecrets = 32

// Secret is a value that a command finds in its environment. The document says
// where the gateway finds it, never what it is.
type Secret struct {
	Name string `json:"name"` // of the environment variable
	From string `json:"from"` // such as file:api-token; see [ParseSource]
}

// Source is where a gateway finds a secret.
type Source struct {
	Kind string // "file", "env" or "command"
	Name string // of a file, a variable or a command of the gateway's settings
}

// sourceName fits a file's name without a directory.
var sourceName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// ParseSource reads file:NAME, env:NAME or command:NAME.
func ParseSource(text string) (s Source, ok bool) {
	kind, name, _ := strings.Cut(text, ":")
	switch kind {
	case "file", "command":
		ok = sourceName.MatchString(name)
	case "env":
		ok = envName.MatchString(name) && len(name) <= 128
	}
	return Source{Kind: kind, Name: name}, ok
}

// secrets reads the secrets of a command whose other variables are env.
func (r *reader) secrets(v value, env map[string]string) []Secret {
	items, ok := r.list(v, "write a list of secrets, for example [{name: API_TOKEN, from: 'file:api-token'}]")
	if !ok {
		return nil
	}
	if len(items) > MaxSecrets {
		r.about(v, "the list", "has "+strconv.Itoa(len(items))+" secrets", "write at most "+strconv.Itoa(MaxSecrets))
		return nil
	}
	var secrets []Secret
	lines := map[string]int{}
	for _, item := range items {
		secret, at := r.secret(item)
		name := secret.Name
		if first, twice := lines[name]; twice && name != "" {
			r.about(at, quote(name), "is the name of two secrets, first on line "+strconv.Itoa(first), "give each secret its own variable")
		} else if _, plain := env[name]; plain && name != "" {
			r.about(at, quote(name), "is in env as well", "keep one of them")
		} else {
			lines[name] = at.Line
		}
		secrets = append(secrets, secret)
	}
	return secrets
}

// secret reads one secret, and says where its name stands.
func (r *reader) secret(v value) (s Secret, at value) {
	fields := r.object(v, secretShape)
	at = v
	if field, ok := fields["name"]; ok {
		at = field
		s.Name = r.checked(field, checkVariable, "write letters, digits and underscores that do not start with a digit")
	}
	if field, ok := fields["from"]; ok {
		s.From = r.source(field)
	}
	return s, at
}

func checkVariable(name string) string {
	switch {
	case !envName.MatchString(name):
		return "is not a variable name"
	case len(name) > 128:
		return "is longer than 128 bytes"
	}
	return ""
}

// source reads where a secret is. What stands there instead is not repeated: it
// may be the secret itself.
func (r *reader) source(v value) string {
	if _, ok := ParseSource(v.Value); !ok {
		r.about(v, "what stands here", "does not name a secret of the gateway", "write file:NAME, env:NAME or command:NAME, never the secret itself")
		return ""
	}
	text, _ := r.text(v)
	return text
}
