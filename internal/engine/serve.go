package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/logkey"
	"tidewait/internal/natsrpc"
	"tidewait/internal/release"
	"tidewait/internal/store"
)

// Server answers Tidewait's API and the agents' heartbeats over NATS.
type Server struct {
	Store   *store.Store
	Placer  *Placer
	Retry   time.Duration // how often a waiting phase is looked at
	Kept    Retention
	Changed func() // called when an import has left news of applications; nil: nobody waits for it
	Version string
	Release release.Release          // what requests are judged by; zero: that of this program
	Served  func(check func() error) // see natsrpc.Service; may be nil
	Log     *slog.Logger
}

// Serve answers until ctx ends.
func (s Server) Serve(ctx context.Context, nc *nats.Conn, ready func()) error {
	return natsrpc.Service{
		Name: "tidewait", Version: s.Version, Description: "missions, nodes and waits of Tidewait",
		Handlers: s.patientHandlers(), Code: errorCode, Served: s.Served, Release: s.Release, Refused: s.refused, Log: s.Log,
	}.Serve(ctx, nc, ready)
}

func (s Server) patientHandlers() map[string]natsrpc.Handler {
	all := s.handlers()
	for subject, h := range all {
		all[subject] = patient(h)
	}
	return all
}

// repeatPause is between two tries of a request that the database did not answer.
const repeatPause = 200 * time.Millisecond

// patient repeats a request while the database does not answer and the request's
// time is not over: after a restart of the database the first use of each old
// connection fails. All requests may be repeated.
func patient(h natsrpc.Handler) natsrpc.Handler {
	return func(ctx context.Context, data []byte) (any, error) {
		for {
			result, err := h(ctx, data)
			if err == nil || !store.Unreachable(err) {
				return result, err
			}
			select {
			case <-time.After(repeatPause):
			case <-ctx.Done():
				return nil, fmt.Errorf("the engine cannot reach its database: %w", err)
			}
		}
	}
}

func errorCode(err error) string {
	switch {
	case store.Unreachable(err):
		return "unavailable"
	case errors.Is(err, store.ErrNotFound):
		return "not_found"
	case errors.Is(err, store.ErrConflict):
		return "conflict"
	case errors.Is(err, store.ErrStale):
		return api.CodeStale
	}
	return ""
}

func (s Server) handlers() map[string]natsrpc.Handler {
	return map[string]natsrpc.Handler{
		api.SubjectMissionList: natsrpc.With(func(ctx context.Context, r api.ListRequest) (any, error) {
			missions, err := s.Store.ListMissions(ctx, r.Status, r.Limit, s.Retry)
			return api.MissionList{Missions: missions}, err
		}),
		api.SubjectMissionShow: natsrpc.With(func(ctx context.Context, r api.NameRequest) (any, error) {
			m, err := s.Store.ShowMission(ctx, r.Name, r.Launch, s.Retry)
			if err != nil {
				return m, err
			}
			now, err := s.Store.Now(ctx)
			m.Expired = s.Kept.expired(m, now)
			return m, err
		}),
		api.SubjectWaitList: natsrpc.With(func(ctx context.Context, r api.WaitRequest) (any, error) {
			if err := r.Check(); err != nil {
				return nil, fmt.Errorf("%w: %w", natsrpc.ErrInvalid, err)
			}
			return s.Store.ListWaits(ctx, r, s.Retry)
		}),
		api.SubjectNodeList: natsrpc.With(func(ctx context.Context, r api.ListRequest) (any, error) {
			return s.Store.ListFleet(ctx, r.Status)
		}),
		api.SubjectNodeShow: natsrpc.With(func(ctx context.Context, r api.NameRequest) (any, error) {
			return s.Store.ShowFleetNode(ctx, r.Name)
		}),
		api.SubjectRelease: natsrpc.With(func(context.Context, struct{}) (any, error) {
			this := release.This()
			return api.EngineRelease{Version: this.Version, Protocol: this.Protocol}, nil
		}),
		api.SubjectNodeCordon:   s.change(capacity.Cordoned),
		api.SubjectNodeUncordon: s.change(capacity.Ready),
		api.SubjectNodeDrain:    s.change(capacity.Draining),
		api.SubjectNodeUndrain:  s.change(capacity.Ready),
		api.SubjectNodeRetire:   s.change(capacity.Retired),
		api.SubjectNodeUnretire: s.changing(s.Store.ReinstateNode, capacity.Ready),
		api.SubjectMayCommit: natsrpc.With(func(ctx context.Context, r api.CommitRequest) (any, error) {
			return struct{}{}, s.Store.MayCommit(ctx, r.Run, r.Epoch)
		}),
		api.SubjectNodeHeartbeats: natsrpc.With(func(ctx context.Context, h api.Heartbeat) (any, error) {
			if err := sentBy(ctx, api.SubjectNodeHeartbeat(h.Node), "node "+h.Node); err != nil {
				return nil, err
			}
			res, err := s.Store.Heartbeat(ctx, h)
			if err == nil && res.Changed {
				s.Placer.Wake(ctx)
			}
			return res.Reply, err
		}),
		api.SubjectGatewayHeartbeats: natsrpc.With(func(ctx context.Context, h api.GatewayHeartbeat) (any, error) {
			if err := sentBy(ctx, api.SubjectGatewayHeartbeat(h.Gateway), "gateway "+h.Gateway); err != nil {
				return nil, err
			}
			now, err := s.Store.GatewayHeartbeat(ctx, h)
			return api.GatewayReply{Now: now}, err
		}),
		api.SubjectGatewayNeeds: natsrpc.With(func(ctx context.Context, r api.NeedsRequest) (any, error) {
			needed, err := s.Store.LaunchesNeeded(ctx, r.Launches)
			return api.NeedsReply{Needed: needed}, err
		}),
		api.SubjectLatticeList: natsrpc.With(func(ctx context.Context, _ api.ListRequest) (any, error) {
			return s.Store.Lattices(ctx)
		}),
		api.SubjectAppShow: natsrpc.With(func(ctx context.Context, r api.AppRequest) (any, error) {
			return s.Store.ShowApplication(ctx, ledger.AppKey{Account: cmp.Or(r.Account, ledger.DefaultAccount), Lattice: r.Lattice, Name: r.Name})
		}),
		api.SubjectAppImport: natsrpc.With(s.importApplication),
	}
}

// sentBy refuses a heartbeat that was not sent on the subject of who it names: NATS
// may allow its sender another one only.
func sentBy(ctx context.Context, own, who string) error {
	if subject := natsrpc.Subject(ctx); subject != own {
		return fmt.Errorf("%w: a heartbeat of %s came on %s", natsrpc.ErrInvalid, who, subject)
	}
	return nil
}

// refused makes a node visible whose agent is not heard for its release. Of another
// request that was refused, who asked is told, and that is enough.
func (s Server) refused(ctx context.Context, _ []byte, skew *release.Skew) {
	node, ok := api.NodeOfHeartbeat(natsrpc.Subject(ctx))
	if !ok {
		return
	}
	first, err := s.Store.RefuseAgent(ctx, node, skew)
	if err != nil {
		s.Log.Warn("the refusal of an agent was not recorded", logkey.Node, node, "error", err)
	}
	if first {
		s.Log.Warn("the agent of a node is refused", logkey.Node, node, "code", skew.Code(), "error", skew)
	}
}

func (s Server) change(to capacity.NodeState) natsrpc.Handler {
	return s.changing(s.Store.ChangeNode, to)
}

func (s Server) changing(change func(context.Context, store.NodeChange) error, to capacity.NodeState) natsrpc.Handler {
	return natsrpc.With(func(ctx context.Context, r api.NodeRequest) (any, error) {
		err := change(ctx, store.NodeChange{
			Node: r.Name, Actor: r.Actor, Reason: r.Reason, To: to, Deadline: time.Duration(r.Deadline) * time.Millisecond,
		})
		if err != nil {
			return nil, err
		}
		s.Placer.Wake(ctx)
		n, err := s.Store.ShowNode(ctx, r.Name)
		return n.Node, err
	})
}
