package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tidewait/internal/api"
	"tidewait/internal/mission"
	"tidewait/internal/natsrpc"
	"tidewait/internal/secret/redact"
	"tidewait/internal/secret/seal"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// errSecretsGone says that the engine gives this execution of a run no secrets:
// the run is not this node's any more, or an earlier execution has had them. It
// is lost, so that its phase is placed again if it is still wanted.
var errSecretsGone = errors.New("the engine gives the run no secrets")

// with is a command with secrets in its environment.
func with(c vm.Command, secrets map[string]string) vm.Command {
	if len(secrets) == 0 {
		return c
	}
	env := maps.Clone(c.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, secrets)
	c.Env = env
	return c
}

// secrets returns the secrets of the run by the names of their variables. They
// are asked for when everything else is there, so that they are in memory no
// longer than the command, and nowhere else: not in e.in, which is in Temporal.
func (e *execution) secrets(ctx context.Context) (map[string]string, error) {
	values, err := e.awaitSecrets(ctx)
	if err == nil {
		e.run.redactor = redact.New(values)
	}
	return values, err
}

// awaitSecrets asks for the secrets of the run until there is an answer, as long as a
// step may last.
func (e *execution) awaitSecrets(ctx context.Context) (map[string]string, error) {
	key, err := seal.NewKey()
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(e.agent.StepTimeout)
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errSecretsLate)
	defer cancel()
	for {
		sealed, err := e.askSecrets(ctx, key, time.Until(deadline))
		if err == nil {
			return e.open(key, sealed)
		}
		if final := finalAnswer(err); final != nil {
			return nil, final
		}
		e.agent.Log.Warn("a run waits for its secrets", "run", e.in.Machine.RunID, "error", err)
		if !pause(ctx, api.SecretsRepeat) {
			return nil, e.late(ctx, err)
		}
	}
}

// errSecretsLate is why asking for secrets ends.
var errSecretsLate = errors.New("the time for getting the secrets is over")

func (e *execution) askSecrets(ctx context.Context, key *seal.Key, left time.Duration) (seal.Sealed, error) {
	ctx, cancel := context.WithTimeout(ctx, api.SecretsWait)
	defer cancel()
	var sealed seal.Sealed
	in := api.SecretsRequest{Run: e.in.Machine.RunID, Key: key.Public(), Left: left.Milliseconds()}
	err := natsrpc.Ask(ctx, e.agent.NATS, api.SubjectNodeSecrets(e.agent.Node), in, &sealed)
	return sealed, err
}

// finalAnswer is what an answer means that would be the same the next time.
func finalAnswer(err error) error {
	var answer *api.Error
	if !errors.As(err, &answer) {
		return nil
	}
	switch answer.Code {
	case api.CodeSecretUnavailable, "invalid":
		return &vm.Failure{Code: api.CodeSecretUnavailable, Message: answer.Message}
	case "conflict", "not_found":
		return fmt.Errorf("%w: %w", errSecretsGone, answer)
	}
	return nil
}

func (e *execution) late(ctx context.Context, last error) error {
	if !errors.Is(context.Cause(ctx), errSecretsLate) {
		return context.Cause(ctx)
	}
	return &vm.Failure{Code: api.CodeSecretUnavailable, Message: fmt.Sprintf("the secrets %s could not be had within %s: %v",
		strings.Join(e.in.Secrets, ", "), e.agent.StepTimeout, last)}
}

func (e *execution) open(key *seal.Key, sealed seal.Sealed) (map[string]string, error) {
	b := seal.Binding{Mission: e.in.Mission, Launch: e.in.Launch, Phase: e.in.Phase, Run: e.in.Machine.RunID, Node: e.agent.Node}
	secrets, err := key.Open(b, e.in.Secrets, sealed)
	if err != nil {
		return nil, &vm.Failure{Code: api.CodeSecretUnavailable, Message: err.Error()}
	}
	values := map[string]string{}
	for _, s := range secrets {
		values[s.Name] = s.Value
	}
	return values, nil
}

// withoutSecrets is the result of a run that did not get them.
func (e *execution) withoutSecrets(turn context.Context, res workflows.ExecuteRunResult, err error) workflows.ExecuteRunResult {
	if errors.Is(err, errSecretsGone) {
		res.Lost, res.Failure = true, err.Error()
		return res
	}
	return failed(res, api.CodeSecretUnavailable, e.orTurn(turn, err))
}

// secretNames are those of a run of several machines, as the engine calls them.
func (t *team) secretNames() []string {
	names := slices.Clone(t.in.Secrets)
	for _, a := range t.in.Agents {
		for _, name := range a.Secrets {
			names = append(names, mission.AgentSecret(a.Name, name))
		}
	}
	return names
}

// share gives each machine the secrets of the phase and those of its agent. Its
// log hides all of them, since machines may tell each other.
func (t *team) share(values map[string]string) {
	for _, m := range t.members {
		m.logs.hide(t.run.redactor)
		m.secrets = map[string]string{}
		for _, name := range t.in.Secrets {
			m.secrets[name] = values[name]
		}
		for _, name := range t.commandOf(m.result.Agent).Secrets {
			m.secrets[name] = values[mission.AgentSecret(m.result.Agent, name)]
		}
	}
}
