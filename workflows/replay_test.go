package workflows_test

import (
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/vm"
	"tidewait/workflows"
)

// Recorded histories lie in <replayDir>/<workflow>/<version>-<scenario>.json.gz.
// Those of an older version stay as long as its workflows may still run.
const (
	replayDir     = "testdata/replay"
	recordVersion = "0.1.0"
)

// recorded is how many histories there must be of each workflow.
var recorded = map[string]int{api.MissionWorkflow: 5, api.PhaseWorkflow: 11, api.AppWorkflow: 4, api.LatticeWorkflow: 1}

// TestReplay replays what earlier versions of the workflows did: workflows that
// run while Tidewait is updated must go on where they were.
func TestReplay(t *testing.T) {
	for name, n := range recorded {
		files, err := filepath.Glob(filepath.Join(replayDir, name, "*.json.gz"))
		require.NoError(t, err)
		require.Len(t, files, n, "histories of workflow %s; make record-histories records those of this version", name)
		for _, file := range files {
			t.Run(name+"/"+filepath.Base(file), func(t *testing.T) {
				require.NoError(t, replayer(workflows.Mission, workflows.Phase).ReplayWorkflowHistory(quiet, readHistory(t, file)))
			})
		}
	}
}

// TestReplayNotices shows that the replay can fail.
func TestReplayNotices(t *testing.T) {
	hasty := func(ctx workflow.Context, in workflows.PhaseInput) (workflows.PhaseResult, error) {
		return workflows.PhaseResult{}, workflow.Sleep(ctx, time.Second)
	}
	r := replayer(workflows.Mission, hasty)
	history := readHistory(t, filepath.Join(replayDir, api.PhaseWorkflow, recordVersion+"-happy.json.gz"))
	require.ErrorContains(t, r.ReplayWorkflowHistory(quiet, history), "TMPRL1100")
}

func replayer(mission, phase any) worker.WorkflowReplayer {
	r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableRegistrationAliasing: true})
	if err != nil {
		panic(err)
	}
	r.RegisterWorkflowWithOptions(mission, workflow.RegisterOptions{Name: api.MissionWorkflow})
	r.RegisterWorkflowWithOptions(phase, workflow.RegisterOptions{Name: api.PhaseWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Lattice, workflow.RegisterOptions{Name: api.LatticeWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Application, workflow.RegisterOptions{Name: api.AppWorkflow})
	return r
}

func readHistory(t testing.TB, file string) *historypb.History {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	h, err := client.HistoryFromJSON(z, client.HistoryJSONOptions{})
	require.NoError(t, err)
	return h
}

// TestRecordHistories records the histories of this version. It runs on demand,
// by `make record-histories`: what was recorded is compared with, not repeated.
func TestRecordHistories(t *testing.T) {
	if os.Getenv("TIDEWAIT_RECORD_HISTORIES") == "" {
		t.Log("nothing is recorded: TIDEWAIT_RECORD_HISTORIES is not set")
		return
	}
	s := startServer(t)
	for scenario, record := range map[string]func(server, *fakes){
		"happy":             recordHappy,
		"waited-and-placed": recordWaited,
		"restamped":         recordRestamped,
		"nudged":            recordNudged,
		"expired":           recordExpired,
		"cancelled":         recordCancelled,
		"node-lost":         recordNodeLost,
		"held":              recordHeld,
		"hold-expired":      recordHoldExpired,
		"backed-off":        recordBackedOff,
		"stopped-and-kept":  recordStopped,
	} {
		t.Run(scenario, func(t *testing.T) {
			s := s.in(t)
			record(s, newFakes())
			s.record(api.PhaseWorkflow, scenario, surveyID)
		})
	}
	for scenario, record := range map[string]func(server, *fakes){
		"waited-and-undeployed": recordAppWaited,
		"deleted-at-once":       recordAppDeleted,
		"failed-and-nudged":     recordAppFailed,
		"without-observer":      recordAppUnobserved,
	} {
		t.Run("application-"+scenario, func(t *testing.T) {
			s := s.in(t)
			record(s, newFakes())
			s.record(api.AppWorkflow, scenario, appID)
		})
	}
	t.Run("lattice-observed", func(t *testing.T) {
		s := s.in(t)
		recordLattice(s, newFakes())
		s.record(api.LatticeWorkflow, "observed", latticeID)
	})
	for scenario, record := range map[string]func(server, *fakes){
		"reset":           recordReset,
		"draft":           recordDraft,
		"two-phases":      recordTwoPhases,
		"phase-cancelled": recordMissionCancelled,
		"rerun":           recordRerun,
	} {
		t.Run("mission-"+scenario, func(t *testing.T) {
			s := s.in(t)
			record(s, newFakes())
			s.record(api.MissionWorkflow, scenario, missionID)
		})
	}
}

func (s server) record(name, scenario, id string) {
	s.t.Helper()
	s.awaitClosed(id)
	text, err := protojson.Marshal(&historypb.History{Events: s.history(id, "")})
	require.NoError(s.t, err)
	dir := filepath.Join(replayDir, name)
	require.NoError(s.t, os.MkdirAll(dir, 0o755))
	f, err := os.Create(filepath.Join(dir, recordVersion+"-"+scenario+".json.gz"))
	require.NoError(s.t, err)
	z := gzip.NewWriter(f)
	_, err = z.Write(text)
	require.NoError(s.t, err)
	require.NoError(s.t, z.Close())
	require.NoError(s.t, f.Close())
}

func (s server) awaitClosed(id string) {
	s.t.Helper()
	_ = s.GetWorkflow(s.t.Context(), id, "").Get(s.t.Context(), nil) // how it closed is the scenario's
}

func recordHappy(s server, f *fakes) {
	s.serve(f)
	s.startPhase(phaseInput())
}

// refuseUntil makes retries fail until the n-th, which gives an outcome.
func refuseUntil(f *fakes, n int64, o ledger.Outcome) {
	var retries atomic.Int64
	f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		switch {
		case !in.Retrying:
			return refusedFor(capacity.CodeCPU, boundAfter), nil
		case retries.Add(1) == n:
			return o, nil
		case retries.Load() > n:
			return placedOn("node-a", in.Attempt), nil
		}
		return ledger.Outcome{}, stillRefused(waiting(in.LastCode, boundAfter))
	}
}

func recordWaited(s server, f *fakes) {
	refuseUntil(f, 3, placedOn("node-a", 1))
	s.serve(f)
	s.startPhase(eager(phaseInput()))
}

func recordRestamped(s server, f *fakes) {
	refuseUntil(f, 2, refusedFor(capacity.CodeBehindInQueue, boundAfter))
	s.serve(f)
	s.startPhase(eager(phaseInput()))
}

func recordNudged(s server, f *fakes) {
	looked := make(chan ledger.Wake, 100)
	var looks atomic.Int64
	f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		looked <- in.Wake
		switch {
		case !in.Retrying:
			return refusedFor(capacity.CodeCPU, boundAfter), nil
		case looks.Add(1) == 3:
			return placedOn("node-a", in.Attempt), nil
		}
		return ledger.Outcome{}, stillRefused(waiting(in.LastCode, boundAfter))
	}
	s.serve(f)
	s.startPhase(phaseInput())
	next(s.t, looked)
	next(s.t, looked)
	for _, signal := range []string{api.SignalNudge, ledger.SignalPlaced} {
		require.NoError(s.t, s.SignalWorkflow(s.t.Context(), surveyID, "", signal, nil))
		next(s.t, looked)
	}
}

func recordExpired(s server, f *fakes) {
	f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if !in.Retrying {
			return refusedFor(capacity.CodeCPU, 2*time.Second), nil
		}
		return ledger.Outcome{}, stillRefused(waiting(in.LastCode, time.Second))
	}
	var looks atomic.Int64
	f.expire = func(context.Context, workflows.ExpireInput) (ledger.Outcome, error) {
		if looks.Add(1) == 1 {
			return refusedFor(capacity.CodeCPU, time.Second), nil
		}
		return ledger.Outcome{Ended: &waitExceeded}, nil
	}
	s.serve(f)
	s.startPhase(eager(phaseInput()))
}

func recordCancelled(s server, f *fakes) {
	g := newGate()
	f.executeRun = g.run
	s.serve(f)
	s.startPhase(phaseInput())
	g.await(s.t)
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), surveyID, "", api.SignalCancel, api.Cancel{Actor: "ann", Reason: "wrong branch"}))
}

func recordNodeLost(s server, f *fakes) {
	f.executeRun = func(ctx context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if in.Machine.RunID == "r7-1" {
			<-ctx.Done() // no heartbeat comes any more
			return workflows.ExecuteRunResult{}, ctx.Err()
		}
		return ran(), nil
	}
	f.judgeRun = func(_ context.Context, in workflows.JudgeRunInput) (ledger.Verdict, error) {
		return ledger.Verdict{
			Gone: in.Retrying, Reason: "node node-a is silent", Node: "node-a",
			Since: since, Until: since.Add(2 * time.Minute), Left: 2 * time.Minute,
		}, nil
	}
	s.serve(f)
	s.startPhase(phaseInput())
}

func recordHeld(s server, f *fakes) {
	paused := make(chan bool, 100)
	f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if in.Gate == nil || in.Gate.Release != nil {
			return placedOn("node-a", in.Attempt), nil
		}
		paused <- true
		return ledger.Outcome{Paused: &ledger.Pause{Kind: "hold", Code: "awaiting_release", Sentence: "held", Since: since}}, nil
	}
	s.serve(f)
	s.startPhase(held(0))
	next(s.t, paused)
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), surveyID, "", api.SignalNudge, api.Nudge{Actor: "bob"}))
	next(s.t, paused)
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), surveyID, "", api.SignalRelease, api.Release{Actor: "ann", Note: "fine"}))
}

func recordHoldExpired(s server, f *fakes) {
	f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if in.Gate.Expire {
			return ledger.Outcome{Ended: &holdExceeded}, nil
		}
		return ledger.Outcome{Paused: &ledger.Pause{
			Kind: "hold", Code: "awaiting_release", Sentence: "held", Since: since, Bound: since.Add(time.Second), Left: time.Second,
		}}, nil
	}
	s.serve(f)
	s.startPhase(held(time.Second))
}

func recordBackedOff(s server, f *fakes) {
	f.executeRun = func(_ context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		if in.Machine.RunID == "r7-1" {
			return workflows.ExecuteRunResult{Exit: &vm.Exit{Code: 2}}, nil
		}
		return ran(), nil
	}
	f.place = func(_ context.Context, in workflows.PlaceInput) (ledger.Outcome, error) {
		if in.Attempt == 1 || in.Gate != nil && in.Gate.Resume != "" {
			return placedOn("node-a", in.Attempt), nil
		}
		return ledger.Outcome{Paused: &ledger.Pause{
			Kind: "backoff", Code: "command_failed", Sentence: "attempt 1 of 2 failed", Since: since, Next: since.Add(time.Second), Left: time.Second,
		}}, nil
	}
	s.serve(f)
	s.startPhase(phaseInput())
}

func recordStopped(s server, f *fakes) {
	g := newGate()
	f.executeRun = func(ctx context.Context, in workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		_, err := g.run(ctx, in)
		return partly(), err
	}
	f.stopRun = func(context.Context, workflows.StopRunInput) error { close(g.opened); return nil }
	s.serve(f)
	s.startPhase(phaseInput())
	g.await(s.t)
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), surveyID, "", api.SignalCancel, api.Cancel{Actor: "ann", Reason: "wrong branch", Keep: true}))
}

func recordRerun(s server, f *fakes) {
	f.launch = func(context.Context, workflows.LaunchInput) (workflows.LaunchResult, error) {
		res := launchResult()
		res.Launched.Launch, res.Launched.Rerun = 4, &ledger.Rerun{Of: 3, First: 1, Commit: "c1"}
		return res, nil
	}
	s.serve(f)
	_, err := s.launch(api.LaunchRequest{Actor: "ann", Rerun: &api.Rerun{Mission: "port", From: "report"}})
	require.NoError(s.t, err)
}

func recordDraft(s server, f *fakes) {
	f.launch = func(context.Context, workflows.LaunchInput) (workflows.LaunchResult, error) {
		return workflows.LaunchResult{
			Mission: workflows.LaunchedMission{Name: "port"},
			Refused: []ledger.RefusedPhase{{Phase: "survey", Refusal: capacity.CapabilityRefusal{Code: capacity.CodeExceedsEveryNode, Sentence: "no node has 64 CPUs"}}},
		}, nil
	}
	s.serve(f)
	_, err := s.launch(launchRequest)
	require.Error(s.t, err)
}

func recordTwoPhases(s server, f *fakes) {
	s.serve(f)
	_, err := s.launch(launchRequest)
	require.NoError(s.t, err)
}

func recordMissionCancelled(s server, f *fakes) {
	g := newGate()
	f.executeRun = g.run
	s.serve(f)
	_, err := s.launch(launchRequest)
	require.NoError(s.t, err)
	g.await(s.t)
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), missionID, "", api.SignalCancel, api.Cancel{Actor: "ann", Reason: "wrong branch"}))
}

func recordReset(s server, f *fakes) {
	g := newGate()
	f.executeRun = g.run
	newBook(f)
	s.serve(f)
	_, err := s.launch(launchRequest)
	require.NoError(s.t, err)
	g.await(s.t)
	s.reset(missionID, firstTask)
	s.awaitFollowing(2)
	close(g.opened)
}
