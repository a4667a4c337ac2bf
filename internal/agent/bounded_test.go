package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/workflows"
)

// deleted are so many names of 1,021 bytes, each of which takes 1,024 in a result.
func deleted(many int) []string {
	var names []string
	for i := range many {
		names = append(names, fmt.Sprintf("%s%021d", strings.Repeat("x", 1000), i))
	}
	return names
}

// TestNamesOfDeletedFilesAddUp: those of all machines travel together.
func TestNamesOfDeletedFilesAddUp(t *testing.T) {
	two := func(first, second int) workflows.ExecuteRunResult {
		return workflows.ExecuteRunResult{Partial: true, Agents: []workflows.AgentResult{
			{Name: "author", Results: &workflows.Object{Name: "a"}, Deleted: deleted(first)},
			{Name: "critic", Results: &workflows.Object{Name: "b"}, Deleted: deleted(second)},
		}}
	}
	fits := two(1000, 535)
	require.Equal(t, fits, bounded(two(1000, 535)))

	res := bounded(two(1000, 536))
	require.Equal(t, "results_too_large", res.FailureCode)
	require.Equal(t, "the names of the files that the machines have deleted take 1572866 bytes together, and may take 1572864; collect less of them", res.Failure)
	require.False(t, res.Partial)
	for _, a := range res.Agents {
		require.Nil(t, a.Results)
		require.Empty(t, a.Deleted)
	}
}
