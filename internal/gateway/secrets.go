package gateway

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"tidewait/internal/api"
	"tidewait/internal/natsrpc"
	"tidewait/internal/secret/seal"
	"tidewait/internal/secret/source"
)

// atOnce is how many requests may wait for their commands side by side.
const atOnce = 8

// serveSecrets seals secrets for runs until ctx ends. Who may ask is decided by
// engines, and by NATS, which lets nobody else.
func (g *Gateway) serveSecrets(ctx context.Context, nc *nats.Conn) error {
	return natsrpc.Service{
		Name: "tidewait-gateway-secrets", Version: g.Version, Description: "secrets of gateway " + g.ID,
		Handlers: map[string]natsrpc.Handler{api.SubjectSealSecrets(g.ID): natsrpc.With(g.seal)},
		Code:     secretsCode, Time: api.SealTime, Parallel: atOnce, Served: g.served("gateway: secrets"), Log: g.Log,
	}.Serve(ctx, nc, nil)
}

func secretsCode(err error) string {
	var unavailable *source.Unavailable
	if errors.As(err, &unavailable) {
		return api.CodeSecretUnavailable
	}
	return ""
}

// seal finds the secrets that a run needs, and seals them to its key.
func (g *Gateway) seal(ctx context.Context, r api.SealRequest) (any, error) {
	if err := seal.CheckPublic(r.Key); err != nil {
		return nil, errors.Join(natsrpc.ErrInvalid, err)
	}
	refs := make([]source.Ref, len(r.Secrets))
	from := make([]string, len(r.Secrets))
	for i, ref := range r.Secrets {
		refs[i], from[i] = source.Ref(ref), ref.From
	}
	log := g.Log.With("mission", r.Mission, "launch", r.Launch, "phase", r.Phase, "run", r.Run, "node", r.Node, "secrets", from)
	values, err := g.Secrets.Resolve(ctx, refs)
	if err != nil {
		log.Warn("secrets were not given to a run", "error", err)
		return nil, err
	}
	sealed, err := seal.Seal(r.Key, seal.Binding{Mission: r.Mission, Launch: r.Launch, Phase: r.Phase, Run: r.Run, Node: r.Node}, values)
	if err == nil {
		log.Info("secrets were given to a run")
	}
	return sealed, err
}
