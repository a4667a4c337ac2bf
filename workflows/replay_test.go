package workflows_test

import (
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// Recorded histories lie in <replayDir>/<release>/<workflow>/<scenario>.json.gz.
// Those of a release stay as they are for as long as its workflows may still run;
// those of the version under way are recorded again when it changes.
const (
	replayDir     = "testdata/replay"
	recordVersion = "0.1.0"
)

// released are the releases before this version, and how many histories there are
// of each workflow.
var released = map[string]map[string]int{}

// TestReplay replays what earlier versions of the workflows did, and what this one
// does: workflows that run while Tidewait is updated must go on where they were.
func TestReplay(t *testing.T) {
	for version, counts := range released {
		for name, n := range counts {
			require.Lenf(t, historiesOf(t, version, name), n, "histories of release %s are not touched any more", version)
		}
	}
	for name, recorded := range scenarios {
		var want []string
		for scenario := range recorded {
			want = append(want, filepath.Join(replayDir, recordVersion, name, scenario+".json.gz"))
		}
		slices.Sort(want)
		require.Equal(t, want, historiesOf(t, recordVersion, name), "make record-histories records those of this version")
	}
	for _, file := range historiesOf(t, "*", "*") {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(file, replayDir+"/"), ".json.gz"), func(t *testing.T) {
			require.NoError(t, replayer(workflows.Mission, workflows.Phase).ReplayWorkflowHistory(quiet, readHistory(t, file)))
		})
	}
}

// historiesOf are the files of a version and a workflow, in order.
func historiesOf(t testing.TB, version, workflow string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(replayDir, version, workflow, "*.json.gz"))
	require.NoError(t, err)
	slices.Sort(files)
	return files
}

// TestReplayNotices shows that the replay can fail.
func TestReplayNotices(t *testing.T) {
	hasty := func(ctx workflow.Context, in workflows.PhaseInput) (workflows.PhaseResult, error) {
		return workflows.PhaseResult{}, workflow.Sleep(ctx, time.Second)
	}
	r := replayer(workflows.Mission, hasty)
	history := readHistory(t, filepath.Join(replayDir, recordVersion, api.PhaseWorkflow, "happy.json.gz"))
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

// scenarios are what is recorded of each workflow: every way it can go, as far as
// that makes another history.
var scenarios = map[string]map[string]func(server, *fakes){
	api.PhaseWorkflow: {
		begunAnew:              recordBegunAnew,
		"gone-on-with":         recordBegunAnew,
		"backed-off":           recordBackedOff,
		"bucket-full":          recordBucketFull,
		"cancelled":            recordCancelled,
		"cancelled-in-queue":   recordCancelledInQueue,
		"cancelled-natively":   recordCancelledNatively,
		"cancelled-while-held": recordCancelledWhileHeld,
		"command-failed":       recordCommandFailed,
		"composed":             recordComposed,
		"drained":              recordDrained,
		"expired":              recordExpired,
		"gateway-away":         recordGatewayAway,
		"happy":                recordHappy,
		"held":                 recordHeld,
		"hold-expired":         recordHoldExpired,
		"incapable":            recordIncapable,
		"kept-by-the-next":     recordKept,
		"node-lost":            recordNodeLost,
		"node-lost-for-good":   recordNodeLostForGood,
		"nudged":               recordNudged,
		"placer-unavailable":   recordPlacerUnavailable,
		"restamped":            recordRestamped,
		"results-refused":      recordResultsRefused,
		"run-waits":            recordRunWaits,
		"stopped-and-kept":     recordStopped,
		"waited-and-placed":    recordWaited,
	},
	api.MissionWorkflow: {
		"draft":             recordDraft,
		"gateway-away":      recordMissionGatewayAway,
		"phase-cancelled":   recordMissionCancelled,
		"phase-failed":      recordMissionPhaseFailed,
		"phase-terminated":  recordMissionPhaseTerminated,
		"rerun":             recordRerun,
		"reset":             recordReset,
		"two-phases":        recordTwoPhases,
		"workspace-refused": recordWorkspaceRefused,
	},
	api.AppWorkflow: {
		begunAnew:               recordAppBegunAnew,
		"gone-on-with":          recordAppBegunAnew,
		"commands-lost":         recordAppCommandsLost,
		"deleted-at-once":       recordAppDeleted,
		"failed-and-nudged":     recordAppFailed,
		"waited-and-undeployed": recordAppWaited,
		"without-observer":      recordAppUnobserved,
	},
	api.LatticeWorkflow: {
		begunAnew:   recordLatticeBegunAnew,
		"cancelled": recordLatticeCancelled,
		"needed":    recordLatticeNeeded,
		"observed":  recordLattice,
	},
}

// recordedOf is the workflow whose history is kept.
var recordedOf = map[string]string{
	api.PhaseWorkflow: surveyID, api.MissionWorkflow: missionID, api.AppWorkflow: appID, api.LatticeWorkflow: latticeID,
}

// TestRecordHistories records the histories of this version. It runs on demand,
// by `make record-histories`: what was recorded is compared with, not repeated.
func TestRecordHistories(t *testing.T) {
	if os.Getenv("TIDEWAIT_RECORD_HISTORIES") == "" {
		t.Log("nothing is recorded: TIDEWAIT_RECORD_HISTORIES is not set")
		return
	}
	s := startServerWith(t, "limit.historyCount.suggestContinueAsNew=100")
	for name, recorded := range scenarios {
		for scenario, record := range recorded {
			t.Run(name+"/"+scenario, func(t *testing.T) {
				s := s.in(t)
				record(s, newFakes())
				s.record(name, scenario, recordedOf[name])
			})
		}
	}
}

// record keeps the history of a workflow's latest run, once that has closed, or of
// its first.
func (s server) record(name, scenario, id string) {
	s.t.Helper()
	s.awaitClosed(id)
	events := s.history(id, "")
	if scenario == begunAnew {
		events = s.history(id, events[0].GetWorkflowExecutionStartedEventAttributes().GetFirstExecutionRunId())
	}
	text, err := protojson.Marshal(&historypb.History{Events: events})
	require.NoError(s.t, err)
	dir := filepath.Join(replayDir, recordVersion, name)
	require.NoError(s.t, os.MkdirAll(dir, 0o755))
	f, err := os.Create(filepath.Join(dir, scenario+".json.gz"))
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
	s.runPhase(f)
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
	s.runMission(f)
	require.NoError(s.t, s.SignalWorkflow(s.t.Context(), missionID, "", api.SignalCancel, api.Cancel{Actor: "ann", Reason: "wrong branch"}))
}

func recordReset(s server, f *fakes) {
	newBook(f)
	g := s.runMission(f)
	s.reset(missionID, firstTask)
	s.awaitFollowing(2)
	close(g.opened)
}
