package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tidewait/internal/access"
	"tidewait/internal/render"
	"tidewait/internal/wadm"
)

// siteFlags are who there is on a NATS server.
func siteFlags(cmd *cobra.Command, site *access.Site) {
	cmd.Flags().StringSliceVar(&site.Gateways, "gateway", nil, "ids of gateways")
	cmd.Flags().StringSliceVar(&site.Nodes, "node", nil, "ids of nodes")
	cmd.Flags().StringSliceVar(&site.Lattices, "lattice", nil, "lattices, each in an account of its own")
}

// checkSite refuses what could not be a token of a subject.
func checkSite(site access.Site) error {
	for flag, names := range map[string][]string{"gateway": site.Gateways, "node": site.Nodes, "lattice": site.Lattices} {
		for _, name := range names {
			if !wadm.IsToken(name) || strings.ContainsAny(name, "\"\\$") {
				return usage("--%s %q is not a name", flag, name)
			}
		}
	}
	return nil
}

func natsConfigCommand(c *cli) *cobra.Command {
	var site access.Site
	cmd := &cobra.Command{
		Use:   "nats-config",
		Short: "Print a configuration of NATS in which each role may do what it needs, and nothing else",
		Long: `Print a configuration of nats-server with TLS, an account for Tidewait and one for
each lattice, and a user for each gateway, each node and each kind of person, who may
do what it needs and nothing else. Passwords are variables of passwords.conf beside it.`,
		Example: "  tidewait setup nats-config --gateway gateway-a --node node-a,node-b --lattice default > nats-server.conf",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkSite(site); err != nil {
				return err
			}
			text, err := site.Config()
			if err != nil {
				return err
			}
			_, err = c.out.Write(text)
			return err
		},
	}
	siteFlags(cmd, &site)
	return cmd
}

// natsUser is a user as `tidewait setup nats-users` prints it.
type natsUser struct {
	Name        string   `json:"name"`
	Account     string   `json:"account"` // TIDEWAIT, or the lattice's
	InboxPrefix string   `json:"inboxPrefix"`
	Publish     []string `json:"publish"`
	Subscribe   []string `json:"subscribe"`
	Responds    bool     `json:"allowResponses"`
}

func natsUsersCommand(c *cli) *cobra.Command {
	var site access.Site
	cmd := &cobra.Command{
		Use:   "nats-users",
		Short: "Print what each role needs of NATS, for users that are made with nsc or elsewhere",
		Example: `  tidewait setup nats-users --node node-a
  tidewait setup nats-users --node node-a -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkSite(site); err != nil {
				return err
			}
			users := natsUsers(site)
			return c.print(users, time.Now(), func(render.Options) string { return usersText(users) })
		},
	}
	siteFlags(cmd, &site)
	return cmd
}

func natsUsers(site access.Site) []natsUser {
	var users []natsUser
	add := func(account string, from []access.User) {
		for _, u := range from {
			users = append(users, natsUser{
				Name: u.Name, Account: account, InboxPrefix: u.InboxPrefix(), Publish: u.Publish, Subscribe: u.Subscribe, Responds: u.Responds,
			})
		}
	}
	add(access.Account, site.Users())
	for _, lattice := range site.Lattices {
		add(access.LatticeAccount(lattice), access.LatticeUsers(lattice))
	}
	return users
}

func usersText(users []natsUser) string {
	var b strings.Builder
	for _, u := range users {
		fmt.Fprintf(&b, "%s in account %s, nats.inbox_prefix %s\n", u.Name, u.Account, u.InboxPrefix)
		for _, subject := range u.Publish {
			fmt.Fprintf(&b, "  publish    %s\n", subject)
		}
		for _, subject := range u.Subscribe {
			fmt.Fprintf(&b, "  subscribe  %s\n", subject)
		}
		if u.Responds {
			b.WriteString("  and one response to each request\n")
		}
	}
	return b.String()
}
