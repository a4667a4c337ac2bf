package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSumOf(t *testing.T) {
	const metrics = `# HELP persistence_requests requests
# TYPE persistence_requests counter
persistence_requests{operation="CreateWorkflowExecution",service_name="history"} 12
persistence_requests{operation="UpdateWorkflowExecution",service_name="history"} 30.5
persistence_requests_total{operation="other"} 1000
other 4
`
	sum, err := sumOf(strings.NewReader(metrics), "persistence_requests")
	require.NoError(t, err)
	require.Equal(t, 42.5, sum)

	_, err = sumOf(strings.NewReader(metrics), "persistence")
	require.EqualError(t, err, "there is no metric persistence")
}

func TestCountersWithoutIdle(t *testing.T) {
	idle := counters{transactions: 10, writes: 4, persistence: 20}
	got := counters{transactions: 125, writes: 52, persistence: 250}.without(idle, 10*time.Second, 25*time.Second)
	require.Equal(t, counters{transactions: 100, writes: 42, persistence: 200}, got)
}
