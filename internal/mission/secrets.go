package mission

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxSecrets is how many secrets a phase may have, those of its agents included.
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

// AllSecrets returns the secrets of a phase and of its agents. Those of an agent
// have its name before theirs, as in author/API_TOKEN.
func (p Phase) AllSecrets() []Secret {
	secrets := slices.Clone(p.Secrets)
	for _, a := range p.Agents {
		for _, s := range a.Secrets {
			secrets = append(secrets, Secret{Name: AgentSecret(a.Name, s.Name), From: s.From})
		}
	}
	return secrets
}

// AgentSecret is what a secret of an agent is called among those of its phase.
func AgentSecret(agent, name string) string { return agent + "/" + name }

// sharedSecrets checks the secrets of a phase against what its agents have.
func (r *reader) sharedSecrets(agents value, phase Phase) {
	for _, s := range phase.Secrets {
		for _, a := range phase.Agents {
			if _, plain := a.Env[s.Name]; plain {
				r.about(agents, quote(s.Name), "is a secret of the phase, and in env of agent "+a.Name, "keep one of them")
			}
			if slices.ContainsFunc(a.Secrets, func(own Secret) bool { return own.Name == s.Name }) {
				r.about(agents, quote(s.Name), "is a secret of the phase, and of agent "+a.Name, "keep one of them; those of the phase go to every agent")
			}
		}
	}
	if count := len(phase.AllSecrets()); count > MaxSecrets {
		r.about(agents, "the phase", "has "+strconv.Itoa(count)+" secrets, those of its agents included", "write at most "+strconv.Itoa(MaxSecrets))
	}
}
