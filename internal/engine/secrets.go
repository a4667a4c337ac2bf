package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"tidewait/internal/api"
	"tidewait/internal/logkey"
	"tidewait/internal/mission"
	"tidewait/internal/natsrpc"
	"tidewait/internal/secret/seal"
	"tidewait/internal/store"
)

// Secrets answers nodes that ask for the secrets of a run. It decides whether the
// node may have them, and passes on what the gateway has sealed, which it cannot
// open.
type Secrets struct {
	Store   *store.Store
	NATS    *nats.Conn
	Version string
	Served  func(check func() error) // see natsrpc.Service; may be nil
	Log     *slog.Logger
	// Noted is called when a phase is to be told that it waits, or waits no more.
	Noted func()
}

// atOnce is how many requests wait for gateways side by side, so that a gateway
// that is silent holds up its own runs only.
const atOnce = 64

// Serve answers until ctx ends.
func (s Secrets) Serve(ctx context.Context, ready func()) error {
	return natsrpc.Service{
		Name: "tidewait-secrets", Version: s.Version, Description: "sealed secrets of runs",
		Handlers: map[string]natsrpc.Handler{
			api.SubjectRunSecrets: patient(natsrpc.With(func(ctx context.Context, r api.SecretsRequest) (any, error) {
				return s.give(ctx, api.NodeOfSecrets(natsrpc.Subject(ctx)), r)
			})),
		},
		Code: secretsCode, Time: api.SecretsTime, Parallel: atOnce, Served: s.Served, Log: s.Log,
	}.Serve(ctx, s.NATS, ready)
}

// secretsCode keeps the code of what a gateway has answered.
func secretsCode(err error) string {
	var answer *api.Error
	if errors.As(err, &answer) {
		return answer.Code
	}
	return errorCode(err)
}

func (s Secrets) give(ctx context.Context, node string, r api.SecretsRequest) (seal.Sealed, error) {
	if err := seal.CheckPublic(r.Key); err != nil {
		return seal.Sealed{}, fmt.Errorf("%w: %w", natsrpc.ErrInvalid, err)
	}
	run, err := s.Store.ClaimSecrets(ctx, r.Run, node, r.Key)
	if err != nil {
		return seal.Sealed{}, err
	}
	refs, err := secretsOf(run)
	if err != nil {
		return seal.Sealed{}, err
	}
	sealed, err := s.ask(ctx, r, run, api.SealRequest{
		Mission: run.Mission, Launch: run.Launch, Phase: run.Phase, Run: r.Run, Node: node, Key: r.Key, Secrets: refs,
	})
	if err != nil {
		s.Log.Info("a run was not given its secrets", logkey.Run, r.Run, logkey.Node, node, logkey.Gateway, run.Gateway, "error", err)
	}
	return sealed, err
}

// secretsOf lists what the document of a launch names for a phase.
func secretsOf(run store.SecretsRun) ([]api.SecretRef, error) {
	var m mission.Mission
	if err := json.Unmarshal(run.Document, &m); err != nil {
		return nil, fmt.Errorf("read the document of mission %s: %w", run.Mission, err)
	}
	var refs []api.SecretRef
	for _, p := range m.Spec.Phases {
		if p.Name != run.Phase {
			continue
		}
		for _, secret := range p.AllSecrets() {
			refs = append(refs, api.SecretRef{Name: secret.Name, From: secret.From})
		}
	}
	if len(refs) == 0 {
		return nil, fmt.Errorf("phase %s of mission %s has no secrets: %w", run.Phase, run.Mission, store.ErrConflict)
	}
	return refs, nil
}

// patience is how long a gateway may be silent before that is shown as a wait.
const patience = 5 * time.Second

// ask lets the gateway seal the secrets. While it does not answer, its silence is
// shown as a wait of the phase.
func (s Secrets) ask(ctx context.Context, r api.SecretsRequest, run store.SecretsRun, in api.SealRequest) (seal.Sealed, error) {
	asking, cancel := context.WithTimeout(ctx, api.SealTime+time.Second)
	defer cancel()
	var sealed seal.Sealed
	answered := make(chan error, 1)
	go func() { answered <- natsrpc.Ask(asking, s.NATS, api.SubjectSealSecrets(run.Gateway), in, &sealed) }()
	late := time.NewTimer(patience)
	defer late.Stop()
	var err error
	select {
	case err = <-answered:
	case <-late.C:
		run.Waits = s.noteWait(ctx, r, run, in) || run.Waits
		err = <-answered
	}
	var answer *api.Error
	switch {
	case err == nil || errors.As(err, &answer):
		if run.Waits {
			s.warn(s.Store.EndSecretsWait(ctx, r.Run))
			s.noted()
		}
		return sealed, err
	case errors.Is(err, nats.ErrNoResponders):
		s.noteWait(ctx, r, run, in)
	}
	return seal.Sealed{}, &api.Error{Code: "unavailable", Message: "gateway " + run.Gateway + " does not answer"}
}

// noteWait reports whether the wait is on record.
func (s Secrets) noteWait(ctx context.Context, r api.SecretsRequest, run store.SecretsRun, in api.SealRequest) bool {
	var names []string
	for _, ref := range in.Secrets {
		names = append(names, ref.Name)
	}
	reason := fmt.Sprintf("gateway %s does not answer; run %s needs its secrets %s before its command starts", run.Gateway, r.Run, strings.Join(names, ", "))
	err := s.Store.NoteSecretsWait(ctx, r.Run, reason, time.Duration(r.Left)*time.Millisecond, api.SecretsRepeat)
	s.warn(err)
	s.noted()
	return err == nil
}

func (s Secrets) noted() {
	if s.Noted != nil {
		s.Noted()
	}
}

func (s Secrets) warn(err error) {
	if err != nil {
		s.Log.Warn("a wait for secrets is not shown as it is", "error", err)
	}
}
