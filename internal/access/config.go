package access

import (
	"bytes"
	"fmt"
	"strings"
	"text/template"

	_ "embed"

	"tidewait/internal/wadm"
)

// Site is who there is on a NATS server.
type Site struct {
	Gateways []string
	Nodes    []string
	Lattices []string // of hosts, in one account each
}

// Users are those of the product's account.
func (s Site) Users() []User {
	users := []User{Engine()}
	for _, id := range s.Gateways {
		users = append(users, Gateway(id))
	}
	for _, id := range s.Nodes {
		users = append(users, Node(id))
	}
	return append(users, Reader(), Operator(), Setup(s.Nodes...))
}

// LatticeUsers are those of a lattice's account.
func LatticeUsers(lattice string) []User {
	return []User{Observer(lattice), Host(lattice), Wadm(lattice)}
}

//go:embed nats-server.conf.tmpl
var text string

var configuration = template.Must(template.New("nats-server.conf").Funcs(template.FuncMap{
	"variable": Variable, "latticeUsers": LatticeUsers, "account": LatticeAccount,
	"api":    func(lattice string) string { return wadm.DefaultPrefix + "." + lattice + ".>" },
	"status": func(lattice string) string { return wadm.StatusSubject("", lattice, "*") },
	"events": func(lattice string) string { return wadm.EventSubject("", lattice, ">") },
}).Parse(text))

// Config is the configuration of a server with these users, whose passwords are
// variables in passwords.conf beside it.
func (s Site) Config() ([]byte, error) {
	var b bytes.Buffer
	if err := configuration.Execute(&b, s); err != nil {
		return nil, fmt.Errorf("write the configuration of NATS: %w", err)
	}
	return b.Bytes(), nil
}

// Variable is the name of the variable with a user's password.
func Variable(u User) string { return "password_" + word(u.Name) }

// Account is the product's own.
const Account = "TIDEWAIT"

// LatticeAccount is the account of a lattice's hosts.
func LatticeAccount(lattice string) string { return "LATTICE_" + strings.ToUpper(word(lattice)) }

// word is a name as a variable can have it. Names that differ in the rest only have the
// same.
func word(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}
