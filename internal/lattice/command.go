package lattice

import (
	"context"
	"fmt"
	"time"

	"tidewait/internal/scaler"
)

// Component is what a host is asked to run of a component.
type Component struct {
	Host        string
	ID          string
	Image       string
	Count       int // 0 stops it
	Config      []string
	Annotations map[string]string
}

// Scale asks a host for a number of instances. The host answers before it tries;
// the outcome is an event. When it already runs another image it says so in
// warning, goes on running that, and may claim to run this one.
func (c Client) Scale(ctx context.Context, s Component) (warning string, err error) {
	asked := fmt.Sprintf("scale component %s on host %s to %d", s.ID, s.Host, s.Count)
	r, err := c.toHost(ctx, asked, "component.scale", s.Host, struct {
		Image       string            `json:"component_ref"`
		ID          string            `json:"component_id"`
		Annotations map[string]string `json:"annotations"`
		Count       int               `json:"count"`
		Host        string            `json:"host_id"`
		Config      []string          `json:"config"`
		AllowUpdate bool              `json:"allow_update"`
	}{s.Image, s.ID, dict(s.Annotations), s.Count, s.Host, list(s.Config), false})
	return r.Message, err
}

// UpdateComponent asks a host to run another image of a component that runs
// there. The host answers before it tries, and no event tells of a failure. Its
// annotations become these.
func (c Client) UpdateComponent(ctx context.Context, host, id, image string, annotations map[string]string) error {
	asked := fmt.Sprintf("update component %s on host %s", id, host)
	_, err := c.toHost(ctx, asked, "component.update", host, struct {
		ID          string            `json:"component_id"`
		Host        string            `json:"host_id"`
		Image       string            `json:"new_component_ref"`
		Annotations map[string]string `json:"annotations"`
	}{id, host, image, dict(annotations)})
	return err
}

// Provider is what a host is asked to run of a provider.
type Provider struct {
	Host        string
	ID          string
	Image       string
	Config      []string
	Annotations map[string]string
}

// StartProvider asks a host to start a provider. The host refuses when one of
// that id runs there, and otherwise answers before it tries; the outcome is an
// event. For an image that names a feature the host lacks it may not answer.
func (c Client) StartProvider(ctx context.Context, p Provider) error {
	asked := fmt.Sprintf("start provider %s on host %s", p.ID, p.Host)
	_, err := c.toHost(ctx, asked, "provider.start", p.Host, struct {
		ID          string            `json:"provider_id"`
		Image       string            `json:"provider_ref"`
		Host        string            `json:"host_id"`
		Config      []string          `json:"config"`
		Annotations map[string]string `json:"annotations"`
	}{p.ID, p.Image, p.Host, list(p.Config), dict(p.Annotations)})
	return err
}

// StopProvider asks a host to stop a provider, and waits until it has: as long
// as the host gives providers to end, which can be more than the timeout.
func (c Client) StopProvider(ctx context.Context, host, id string) error {
	asked := fmt.Sprintf("stop provider %s on host %s", id, host)
	_, err := c.toHost(ctx, asked, "provider.stop", host, struct {
		Host string `json:"host_id"`
		ID   string `json:"provider_id"`
	}{host, id})
	return err
}

// PutLink puts a link, in the place of one of the same tuple.
func (c Client) PutLink(ctx context.Context, l scaler.Link) error {
	asked := fmt.Sprintf("put link %s of %s to %s for %s:%s", l.Name, l.Source, l.Target, l.Namespace, l.Package)
	_, err := c.request(ctx, asked, "link.put", toWire(l))
	return err
}

// DeleteLink deletes a link. The host does not look at the target, and deletes
// the first one that it finds. It is no error when there is none.
func (c Client) DeleteLink(ctx context.Context, t scaler.Tuple) error {
	asked := fmt.Sprintf("delete link %s of %s for %s:%s", t.Name, t.Source, t.Namespace, t.Package)
	_, err := c.request(ctx, asked, "link.del", struct {
		Source    string `json:"source_id"`
		Name      string `json:"name"`
		Namespace string `json:"wit_namespace"`
		Package   string `json:"wit_package"`
	}{t.Source, t.Name, t.Namespace, t.Package})
	return err
}

// PutConfig puts a configuration, all its values at once.
func (c Client) PutConfig(ctx context.Context, name string, values map[string]string) error {
	return c.onConfig(ctx, "put configuration "+name, "config.put.", name, dict(values))
}

// DeleteConfig deletes a configuration. It is no error when there is none.
func (c Client) DeleteConfig(ctx context.Context, name string) error {
	return c.onConfig(ctx, "delete configuration "+name, "config.del.", name, nil)
}

func (c Client) onConfig(ctx context.Context, asked, verb, name string, body any) error {
	if err := token("configuration", name); err != nil {
		return fmt.Errorf("%s: %w", asked, err)
	}
	_, err := c.request(ctx, asked, verb+name, body)
	return err
}

// PutLabel gives a host a label. Those that begin with hostcore. it refuses.
func (c Client) PutLabel(ctx context.Context, host, key, value string) error {
	asked := fmt.Sprintf("put label %s of host %s", key, host)
	_, err := c.toHost(ctx, asked, "label.put", host, map[string]string{"key": key, "value": value})
	return err
}

// DeleteLabel takes a label from a host. It is no error when it has none.
func (c Client) DeleteLabel(ctx context.Context, host, key string) error {
	asked := fmt.Sprintf("delete label %s of host %s", key, host)
	_, err := c.toHost(ctx, asked, "label.del", host, map[string]string{"key": key})
	return err
}

// StopHost asks a host to stop all that it runs, and itself.
func (c Client) StopHost(ctx context.Context, host string, within time.Duration) error {
	asked := "stop host " + host
	_, err := c.toHost(ctx, asked, "host.stop", host, struct {
		Host   string `json:"host_id"`
		Within int64  `json:"timeout"` // milliseconds
	}{host, within.Milliseconds()})
	return err
}
