package config

import (
	"fmt"
	"os"
	"strings"
)

// EffectiveID is the node's id: ID, or one made from the host's name.
func (n Node) EffectiveID() (string, error) { return effectiveID("node.id", n.ID) }

// EffectiveID is the gateway's id: ID, or one made from the host's name.
func (g Gateway) EffectiveID() (string, error) { return effectiveID("gateway.id", g.ID) }

func effectiveID(name, id string) (string, error) {
	if id != "" {
		return id, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("cannot read the host's name, set %s: %w", name, err)
	}
	if id = idFromHost(host); id == "" {
		return "", fmt.Errorf("the host's name %q gives no id, set %s", host, name)
	}
	return id, nil
}

// idFromHost keeps what an id may hold; ids name NATS subjects and buckets.
func idFromHost(host string) string {
	id := strings.Map(func(r rune) rune {
		if idPattern.MatchString(string(r)) {
			return r
		}
		return '-'
	}, host)
	return id[:min(len(id), 63)]
}
