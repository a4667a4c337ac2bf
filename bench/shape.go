package main

import (
	"context"
	"fmt"
	"strings"

	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"

	"tidewait/workflows"
)

// step is one thing a workflow does: an activity on some kind of queue, or a
// child workflow.
type step struct {
	Queue string `json:"queue,omitempty"` // engine, gateway, node, or local for a local activity
	Child []step `json:"child,omitempty"` // of a child workflow
}

// kinds of queues.
const (
	onEngine  = "engine"
	onGateway = "gateway"
	onNode    = "node"
	isLocal   = "local"
)

// shapeOf reads from its history what a workflow did, so that the reference does
// the same however the product changes. It also counts the events, those of its
// children included.
func shapeOf(ctx context.Context, c client.Client, id, run string) ([]step, int, error) {
	var steps []step
	events := 0
	h := c.GetWorkflowHistory(ctx, id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for h.HasNext() {
		e, err := h.Next()
		if err != nil {
			return nil, 0, fmt.Errorf("read the history of %s: %w", id, err)
		}
		events++
		if queue := queueOf(e); queue != "" {
			steps = append(steps, step{Queue: queue})
		}
		if started := e.GetChildWorkflowExecutionStartedEventAttributes().GetWorkflowExecution(); started != nil {
			child, more, err := shapeOf(ctx, c, started.GetWorkflowId(), started.GetRunId())
			if err != nil {
				return nil, 0, err
			}
			events += more
			steps = append(steps, step{Child: child})
		}
	}
	return steps, events, nil
}

// queueOf returns the kind of queue of an event that begins an activity, or
// nothing.
func queueOf(e *historypb.HistoryEvent) string {
	if marker := e.GetMarkerRecordedEventAttributes(); marker.GetMarkerName() == "LocalActivity" {
		return isLocal
	}
	scheduled := e.GetActivityTaskScheduledEventAttributes()
	switch queue := scheduled.GetTaskQueue().GetName(); {
	case scheduled == nil:
		return ""
	case strings.HasPrefix(queue, workflows.GatewayQueue("")):
		return onGateway
	case strings.HasPrefix(queue, workflows.NodeQueue("")):
		return onNode
	}
	return onEngine
}

// queues lists the queues of the activities of steps, in order.
func queues(steps []step) []string {
	var all []string
	for _, s := range steps {
		if s.Queue != "" {
			all = append(all, s.Queue)
		}
		all = append(all, queues(s.Child)...)
	}
	return all
}

// activities counts the activities of steps, by queue.
func activities(steps []step) map[string]int {
	n := map[string]int{}
	for _, queue := range queues(steps) {
		n[queue]++
	}
	return n
}
