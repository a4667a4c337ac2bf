package oam

import (
	"strings"
	"unicode"
)

// secretPrefix is in front of the name a secret has on the lattice.
const secretPrefix = "SECRET_"

// ComponentID returns the id a component or provider runs under: the explicit
// one or, when that is empty, one made of both names.
func ComponentID(app, component, explicit string) string {
	if explicit != "" {
		return explicit
	}
	var id strings.Builder
	sanitize(&id, app)
	id.WriteByte('-')
	sanitize(&id, component)
	return id.String()
}

// ConfigName returns the name a config has on the lattice.
func ConfigName(app string, c Config) string {
	if !c.Managed() {
		return c.Name
	}
	return ComponentID(app, c.Name, "")
}

// SecretName returns the name the config that stands for a secret has on the
// lattice.
func SecretName(app, secret string) string {
	return secretPrefix + ComponentID(app, secret, "")
}

// sanitize writes a name in small ASCII letters and digits, with an underscore
// for every other character. Lower case is that of whole strings: İ becomes two
// characters.
func sanitize(into *strings.Builder, name string) {
	for _, char := range name {
		if char == 'İ' {
			into.WriteString("i_")
			continue
		}
		switch char = unicode.ToLower(char); {
		case 'a' <= char && char <= 'z', '0' <= char && char <= '9':
			into.WriteByte(byte(char))
		default:
			into.WriteByte('_')
		}
	}
}
