package workflows_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/scaler"
	"tidewait/workflows"
)

// TestApplicationLivesLong wakes an application again and again, ten times at once
// on average and faster than it looks, on a server that has it begin its history anew
// after less than a hundred wakes. Each look counts one more failure on what the look before had left,
// so that whatever were forgotten between two runs would be missing from then on.
func TestApplicationLivesLong(t *testing.T) {
	wakes := 1000
	if text := os.Getenv("TIDEWAIT_WAKES"); text != "" {
		var err error
		wakes, err = strconv.Atoi(text)
		require.NoError(t, err, "TIDEWAIT_WAKES")
	}
	s := startServerWith(t, "limit.historyCount.suggestContinueAsNew=120").in(t)
	f := newFakes()
	l := &longLived{t: t, looked: make(chan struct{}, 2*wakes), nudged: map[string]string{}}
	f.assess = l.assess
	s.serve(f)
	began := time.Now()
	s.revise(1)
	<-l.looked
	l.shows(s)

	nudges := 0
	for sent, burst := 0, 0; sent < wakes; burst++ {
		for range min(1+burst%19, wakes-sent) {
			sent++
			if sent%100 > 0 {
				require.NoError(t, s.SignalWorkflow(t.Context(), appID, "", api.SignalWake, nil))
				continue
			}
			nudges++
			require.NoError(t, s.SignalWorkflow(t.Context(), appID, "", api.SignalNudge, api.Nudge{Actor: fmt.Sprintf("ann-%d", nudges)}))
		}
		l.await(sent)
	}
	s.revise(2)
	eventually(t, func() bool { return s.atRest() }, "it does not come to rest")
	l.shows(s)

	chain := s.chain(appID)
	t.Logf("%d wakes, %d runs, %d looks, %d events in %s", wakes, chain.runs, l.count(), chain.events, time.Since(began).Round(time.Second))
	require.GreaterOrEqual(t, chain.runs-1, wakes/100, "continue-as-new")
	require.Equal(t, wakes, chain.signals, "each wake and nudge is in the history of one run")
	require.Equal(t, workflows.AppInput{Key: appKey, Resume: workflows.AppResume{
		Revision: int64(chain.resumed), Backoff: l.backoff(chain.resumed),
		Wait: ledger.AppWait{Kind: "backoff", Code: "command_failed", Reason: "manifest unknown", Since: since},
	}}, chain.latest, "what the latest run began with")
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.wrong)
	require.Len(t, l.nudged, nudges, "each nudge was told once, under a key of its own")
}

// longLived answers looks, and checks what each is told of those before.
type longLived struct {
	t      *testing.T
	looked chan struct{}

	mu     sync.Mutex
	looks  int
	nudged map[string]string // actors by the keys of what they did
	wrong  []string
}

// await waits for a look, and forgets all that were taken already.
func (l *longLived) await(sent int) {
	l.t.Helper()
	select {
	case <-l.looked:
	case <-time.After(time.Minute):
		l.t.Fatalf("nobody looked after %d wakes", sent)
	}
	for len(l.looked) > 0 {
		<-l.looked
	}
}

func (l *longLived) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.looks
}

// backoff is what has failed after so many looks.
func (l *longLived) backoff(looks int) scaler.Backoff {
	return scaler.Backoff{{Key: scaleKey, Code: "command_failed", Message: "manifest unknown", Attempts: looks, Since: since, Next: since.Add(time.Hour)}}
}

func (l *longLived) assess(ctx context.Context, in workflows.AssessInput) (workflows.AssessResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if activity.GetInfo(ctx).Attempt == 1 {
		if in.Revision != int64(l.looks) {
			l.wrong = append(l.wrong, fmt.Sprintf("look %d was told of revision %d", l.looks+1, in.Revision))
		}
		if l.looks > 0 && (len(in.Backoff) != 1 || in.Backoff[0] != l.backoff(l.looks)[0]) {
			l.wrong = append(l.wrong, fmt.Sprintf("look %d was told of failures %+v", l.looks+1, in.Backoff))
		}
		l.looks++
		for _, act := range in.Acts {
			l.nudged[act.Key] = act.Actor
		}
	}
	res := failingApp(0)
	res.Revision, res.Backoff = int64(l.looks), l.backoff(l.looks)
	l.looked <- struct{}{}
	return res, nil
}

// shows asserts what a list shows of the application, before its first run has
// ended and after its last has begun.
func (l *longLived) shows(s server) {
	l.t.Helper()
	eventually(l.t, func() bool {
		seen := s.newest(appID).TypedSearchAttributes
		kind, _ := seen.GetKeyword(workflows.AttrWait)
		code, _ := seen.GetKeyword(workflows.AttrReason)
		from, _ := seen.GetTime(workflows.AttrSince)
		app, _ := seen.GetKeyword(workflows.AttrApp)
		return kind == "backoff" && code == "command_failed" && app == "shop-front" && from.Equal(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC))
	}, "the application does not show that it waits since 08:00")
}

// atRest reports whether the application has nothing to do.
func (s server) atRest() bool {
	desc, err := s.DescribeWorkflow(s.t.Context(), appID, "")
	return err == nil && desc.RawResponse.GetPendingWorkflowTask() == nil && len(desc.RawResponse.GetPendingActivities()) == 0
}

// runChain is a workflow from its first run to its latest.
type runChain struct {
	runs, events, signals int
	resumed               int // the looks that there had been when the latest run began
	latest                workflows.AppInput
}

// chain follows a workflow's runs, the latest first.
func (s server) chain(id string) runChain {
	s.t.Helper()
	var c runChain
	for run := s.newest(id).WorkflowExecution.RunID; run != ""; {
		events := s.history(id, run)
		begun := events[0].GetWorkflowExecutionStartedEventAttributes()
		if c.runs == 0 {
			require.NoError(s.t, converter.GetDefaultDataConverter().FromPayloads(begun.GetInput(), &c.latest))
			c.resumed = int(c.latest.Resume.Revision)
		}
		c.runs++
		c.events += len(events)
		c.signals += count(events, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
		run = begun.GetContinuedExecutionRunId()
	}
	return c
}
