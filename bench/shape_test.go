package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
)

func TestQueueOf(t *testing.T) {
	for queue, want := range map[string]string{"tidewait": "engine", "gateway.gw": "gateway", "node.n1": "node"} {
		require.Equal(t, want, queueOf(&historypb.HistoryEvent{
			Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
				ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
					TaskQueue: &taskqueuepb.TaskQueue{Name: queue},
				},
			},
		}))
	}
	for marker, want := range map[string]string{"LocalActivity": "local", "Version": ""} {
		require.Equal(t, want, queueOf(&historypb.HistoryEvent{
			Attributes: &historypb.HistoryEvent_MarkerRecordedEventAttributes{
				MarkerRecordedEventAttributes: &historypb.MarkerRecordedEventAttributes{MarkerName: marker},
			},
		}))
	}
	require.Empty(t, queueOf(&historypb.HistoryEvent{}))
}

func TestActivities(t *testing.T) {
	require.Equal(t, map[string]int{"engine": 2, "node": 1, "local": 1}, activities([]step{
		{Queue: onEngine}, {Child: []step{{Queue: isLocal}, {Queue: onNode}}}, {Queue: onEngine},
	}))
}
