package lattice

import (
	"context"
	"fmt"
	"time"

	"tidewait/internal/scaler"
)

// Ping asks all hosts who they are and collects answers for a time, less when
// there are none to come. Answers that cannot be read are left out.
func (c Client) Ping(ctx context.Context, window time.Duration) ([]HostInfo, error) {
	var all []HostInfo
	err := c.ping(ctx, window, func(info HostInfo) { all = append(all, info) })
	return all, err
}

// ping passes answers on as they come.
func (c Client) ping(ctx context.Context, window time.Duration, each func(HostInfo)) error {
	const asked = "ping hosts"
	return c.gather(ctx, asked, "host.ping", nil, window, func(r reply, err error) {
		if err != nil {
			return
		}
		if info, err := decodeHostInfo(asked, r); err == nil {
			each(info)
		}
	})
}

func decodeHostInfo(asked string, r reply) (HostInfo, error) {
	w, _, err := decodeResponse[wireHostInfo](asked, r)
	if err == nil {
		err = token("host", w.ID)
	}
	if err != nil {
		return HostInfo{}, err
	}
	return HostInfo{ID: w.ID, Name: w.Name, Labels: w.Labels, Lattice: w.Lattice, Version: w.Version, Uptime: w.uptime()}, nil
}

// Inventory asks a host what it runs.
func (c Client) Inventory(ctx context.Context, host string) (Inventory, error) {
	asked := "ask host " + host + " for its inventory"
	r, err := c.toHost(ctx, asked, "host.get", host, nil)
	if err != nil {
		return Inventory{}, err
	}
	return decodeInventory(asked, host, r)
}

func decodeInventory(asked, host string, r reply) (Inventory, error) {
	w, found, err := decodeResponse[wireInventory](asked, r)
	if err != nil {
		return Inventory{}, err
	}
	if !found || w.Host != host {
		return Inventory{}, fmt.Errorf("%s: the answer: %w", asked, unreadable("it is of host %q", clip(w.Host)))
	}
	inv, err := w.inventory()
	if err != nil {
		return Inventory{}, fmt.Errorf("%s: the answer: %w", asked, unreadable("%w", err))
	}
	return inv, nil
}

// Links asks for all links of the lattice. Any host answers, from what it keeps
// of them: for some milliseconds it may not know of a link that another one has
// put.
func (c Client) Links(ctx context.Context) ([]scaler.Link, error) {
	const asked = "ask for the links"
	r, err := c.request(ctx, asked, "link.get", nil)
	if err != nil {
		return nil, err
	}
	return decodeLinks(asked, r)
}

func decodeLinks(asked string, r reply) ([]scaler.Link, error) {
	wire, _, err := decodeResponse[[]wireLink](asked, r)
	if err != nil {
		return nil, err
	}
	all := make([]scaler.Link, 0, len(wire))
	for _, w := range wire {
		l, err := w.link()
		if err != nil {
			return nil, fmt.Errorf("%s: the answer: %w", asked, unreadable("%w", err))
		}
		all = append(all, l)
	}
	return all, nil
}

// Config asks for the values of a configuration. found is false when it does
// not exist.
func (c Client) Config(ctx context.Context, name string) (values map[string]string, found bool, err error) {
	asked := "ask for configuration " + name
	if err := token("configuration", name); err != nil {
		return nil, false, fmt.Errorf("%s: %w", asked, err)
	}
	r, err := c.request(ctx, asked, "config.get."+name, nil)
	if err != nil {
		return nil, false, err
	}
	return decodeResponse[map[string]string](asked, r)
}

// Claims asks for the claims of all signed components and providers that hosts
// have started.
func (c Client) Claims(ctx context.Context) ([]map[string]string, error) {
	const asked = "ask for the claims"
	r, err := c.request(ctx, asked, "claims.get", nil)
	if err != nil {
		return nil, err
	}
	all, _, err := decodeResponse[[]map[string]string](asked, r)
	return all, err
}

// toHost asks one host.
func (c Client) toHost(ctx context.Context, asked, what, host string, body any) (reply, error) {
	if err := token("host", host); err != nil {
		return reply{}, fmt.Errorf("%s: %w", asked, err)
	}
	return c.request(ctx, asked, what+"."+host, body)
}
