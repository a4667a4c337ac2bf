package vm_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
)

// TestJSON holds the names that people read in Temporal's Web UI.
func TestJSON(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{vm.Spec{RunID: "r7-1", CPUMilli: 1500, MemoryMiB: 512, DiskMiB: 1024}, `{"runId":"r7-1","cpuMilli":1500,"memoryMiB":512,"diskMiB":1024}`},
		{vm.Command{Argv: []string{"make", "survey"}, Env: map[string]string{"MODE": "fast"}}, `{"argv":["make","survey"],"env":{"MODE":"fast"}}`},
		{vm.Command{Argv: []string{"true"}}, `{"argv":["true"]}`},
	} {
		b, err := json.Marshal(c.value)
		require.NoError(t, err)
		require.Equal(t, c.want, string(b))
	}
}

// TestJSONOfOlderHistories reads what was recorded before the fields were named:
// a workflow in flight must find its machine again.
func TestJSONOfOlderHistories(t *testing.T) {
	var s vm.Spec
	require.NoError(t, json.Unmarshal([]byte(`{"RunID":"r7-1","CPUMilli":1500,"MemoryMiB":512,"DiskMiB":1024}`), &s))
	require.Equal(t, vm.Spec{RunID: "r7-1", CPUMilli: 1500, MemoryMiB: 512, DiskMiB: 1024}, s)
	var c vm.Command
	require.NoError(t, json.Unmarshal([]byte(`{"Argv":["make"],"Env":{"MODE":"fast"}}`), &c))
	require.Equal(t, vm.Command{Argv: []string{"make"}, Env: map[string]string{"MODE": "fast"}}, c)
}
