package observatory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/lattice"
	"tidewait/internal/ledger"
	"tidewait/internal/natstest"
	"tidewait/internal/scaler"
	"tidewait/internal/simhost"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
	"tidewait/workflows"
)

// connect starts a NATS server.
func connect(t *testing.T) *nats.Conn {
	t.Helper()
	return natstest.Connect(t, natstest.Start(t, &server.Options{}).ClientURL())
}

// observe begins an observation that takes no lattice and wakes nobody. Each
// change is told once it is noted.
func observe(t *testing.T, nc *nats.Conn) (ob *observation, changes <-chan lattice.Change) {
	t.Helper()
	told := make(chan lattice.Change, 100)
	log := slog.New(slog.DiscardHandler)
	ob = &observation{Observatory: &Observatory{Log: log}, log: log, apps: map[ledger.AppKey]*watched{}}
	ob.observer = lattice.NewObserver(lattice.Client{Conn: nc, Lattice: "default"}, lattice.Settings{}, log, func(c lattice.Change) {
		ob.mu.Lock()
		ob.remark(c, time.Now())
		ob.mu.Unlock()
		told <- c
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ob.observer.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return ob, told
}

// next waits for a change of a kind.
func next(t *testing.T, changes <-chan lattice.Change, wanted func(lattice.Change) bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case c := <-changes:
			if wanted(c) {
				return
			}
		case <-limit:
			require.FailNow(t, "nothing of the kind has changed")
		}
	}
}

func started(c lattice.Change) bool { return len(c.Started) > 0 }
func configs(c lattice.Change) bool { return len(c.Configs) > 0 }

// An engine that takes a lattice over sees its hosts and configurations for the
// first time. That is no reason to forget what failed there, and since when.
func TestOnlyWhatHappenedGivesFailuresANewChance(t *testing.T) {
	nc := connect(t)
	clock := simhost.NewManualClock(time.Now())
	hosts := simhost.NewLattice(nc, simhost.Options{Clock: clock, Heartbeat: 24 * time.Hour})
	t.Cleanup(hosts.Close)
	spec := simhost.HostSpec{Name: "one"}
	host, err := hosts.Start(t.Context(), spec)
	require.NoError(t, err)
	control := lattice.Client{Conn: nc, Lattice: "default"}
	require.NoError(t, control.PutConfig(t.Context(), "settings", map[string]string{"mode": "a"}))
	clock.Advance(time.Hour)

	ob, changes := observe(t, nc)
	next(t, changes, started)
	require.NoError(t, ob.observer.Want(t.Context(), "shop", []string{"settings"}))
	next(t, changes, configs)

	failures := scaler.Backoff{
		{Key: scaler.Key{Subject: "api", Host: host.ID()}, Code: scaler.CodeCommandFailed, Message: "no", Attempts: 7, Since: time.Now().Add(-time.Minute)},
		{Key: scaler.Key{Subject: "web", Host: host.ID()}, Code: scaler.CodeCommandFailed, Message: "no", Attempts: 7, Since: time.Now().Add(-time.Minute)},
	}
	plan := scaler.Input{
		Desired: []scaler.Scaler{{ID: "api", Needs: []scaler.Config{{Name: "settings"}}}, {ID: "web"}}, Now: time.Now(),
	}
	kept := func() scaler.Backoff {
		return ob.backoff(workflows.AssessInput{Backoff: failures}, store.Task{}, plan)
	}
	require.Equal(t, failures, kept(), "the host and the configuration were there before")

	require.NoError(t, control.PutConfig(t.Context(), "settings", map[string]string{"mode": "b"}))
	next(t, changes, configs)
	require.Equal(t, failures[1:], kept(), "what needs the configuration has a new chance")

	host.Kill()
	_, err = hosts.Start(t.Context(), spec)
	require.NoError(t, err)
	next(t, changes, started)
	require.Empty(t, kept(), "what failed on the host has a new chance")
}

func TestOnlyQuestionsThatStayedOpenKeepAnApplicationFromBeingLookedAt(t *testing.T) {
	for err, want := range map[error]bool{
		lattice.ErrTimeout:                          true,
		lattice.ErrNobody:                           true,
		lattice.ErrCutOff:                           true,
		context.DeadlineExceeded:                    true,
		lattice.ErrUnreadable:                       false,
		&lattice.Refused{Message: "no"}:             false,
		&lattice.InvalidName{What: "configuration"}: false,
	} {
		require.Equal(t, want, mayBeAnswered(fmt.Errorf("ask: %w", err)), "%v", err)
	}
	require.True(t, mayBeAnswered(errors.Join(lattice.ErrUnreadable, lattice.ErrTimeout)))
}

// Whatever was not sent because the observation has ended is no failure of its
// host.
func TestCommandsOfAnObservationThatEndedSayNothing(t *testing.T) {
	o := lattice.NewObserver(lattice.Client{Lattice: "default"}, lattice.Settings{}, slog.New(slog.DiscardHandler), nil)
	r := o.Execute(t.Context(), scaler.Command{Action: scaler.Scale, ID: "api"})
	require.Equal(t, lattice.Result{Message: "not sent: the lattice is not observed"}, r)
	require.True(t, saysNothing(r))
	require.False(t, saysNothing(lattice.Result{OK: true}))
	require.False(t, saysNothing(lattice.Result{Code: scaler.CodeCommandFailed}))
}

// An application that is not deployed any more, and of which links are left that
// nobody is there to delete, says what it is still there for.
func TestWhatIsLeftWithoutHostsIsSaid(t *testing.T) {
	ob := &observation{Observatory: &Observatory{}}
	ob.observer = lattice.NewObserver(lattice.Client{Lattice: "default"}, lattice.Settings{}, slog.New(slog.DiscardHandler), nil)
	for _, c := range []struct {
		owned scaler.Resources
		line  string
		clean bool
	}{
		{scaler.Resources{Configs: []string{"shop-settings"}}, "its links and configurations are deleted when a host appears", false},
		{scaler.Resources{}, "undeployed: the application is not deployed", true},
	} {
		plan := scaler.Input{App: "shop", Lattice: "default", Owned: c.owned, Now: time.Now()}
		a := ob.assessment(ledger.AppKey{Account: "default", Lattice: "default", Name: "shop"}, store.Task{}, plan, scaler.Plan(plan))
		require.Equal(t, c.line, a.line)
		require.Equal(t, c.clean, a.Clean)
		require.JSONEq(t, `{"status": {"type": "undeployed", "message": "the application is not deployed"}, "version": "", "components": []}`, string(a.Status))
		require.Nil(t, a.Wait)
	}
}

// What fails and what waits both have a wait; that of the status comes first.
func TestTheWaitBesideAnotherFailureIsShown(t *testing.T) {
	since := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	few := wadm.ScalerStatus{Status: wadm.StatusInfo{Type: wadm.Failed, Reason: scaler.CodeNotEnoughHosts, Message: "1 of 2", Since: &since}}
	taken := wadm.ScalerStatus{Status: wadm.StatusInfo{Type: wadm.Failed, Reason: scaler.CodeHostsTaken, Message: "taken", Since: &since}}
	conflict := wadm.ScalerStatus{Status: wadm.StatusInfo{Type: wadm.Failed, Reason: scaler.CodeLinkConflict, Message: "in the way", Since: &since}}
	refused := wadm.ScalerStatus{Status: wadm.StatusInfo{Type: wadm.Failed, Reason: scaler.CodeCommandRefused, Message: "no", Since: &since}}
	missing := wadm.ScalerStatus{Status: wadm.StatusInfo{Type: wadm.Waiting, Reason: scaler.CodeConfigMissing, Message: "not there", Since: &since}}
	for _, c := range []struct {
		rows []wadm.ScalerStatus
		want *ledger.AppWait
	}{
		{[]wadm.ScalerStatus{{Status: wadm.StatusInfo{Type: wadm.Reconciling, Message: "starting"}}}, nil},
		{[]wadm.ScalerStatus{refused, missing}, &ledger.AppWait{Kind: "backoff", Code: "command_refused", Reason: "no, not there", Since: since}},
		{[]wadm.ScalerStatus{missing}, &ledger.AppWait{Kind: "dependency", Code: "config_missing", Reason: "not there", Since: since}},
		{[]wadm.ScalerStatus{conflict}, &ledger.AppWait{Kind: "dependency", Code: "link_conflict", Reason: "in the way", Since: since}},
		{[]wadm.ScalerStatus{few}, &ledger.AppWait{Kind: "lattice", Code: "not_enough_hosts", Reason: "1 of 2", Since: since}},
		{[]wadm.ScalerStatus{taken}, &ledger.AppWait{Kind: "lattice", Code: "hosts_taken", Reason: "taken", Since: since}},
	} {
		require.Equal(t, c.want, waitIn(wadm.Aggregate(c.rows)))
	}
}

func TestWhyAnObserverEnded(t *testing.T) {
	stopped := errors.New("the engine stops")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	require.Equal(t, stopped, endOf(over, "prod", nil))
	require.Equal(t, stopped, endOf(over, "prod", errors.New("connection closed")))
	require.EqualError(t, endOf(t.Context(), "prod", errors.New("connection closed")), "the observer of lattice prod ended: connection closed")
	require.EqualError(t, endOf(t.Context(), "prod", nil), "the observer of lattice prod ended")
}
