package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/vm"
)

func TestNodeShowsLeaks(t *testing.T) {
	node := fleet().Nodes[0]
	require.NotContains(t, plainText.Node(api.NodeDetail{Node: node}, nil), "  leaks ")
	node.Orphaned = 2
	node.Leaks = api.Leaks{Leaks: vm.Leaks{Directories: 1, Processes: 3, Cgroups: 4}, Journals: 5, Machines: 6}
	require.Contains(t, plainText.Node(api.NodeDetail{Node: node}, nil),
		"  leaks   6 machines that nobody wanted, 3 keepers without a run, 4 cgroups without a run, 1 directories without a journal, "+
			"5 journals that cannot be read, 2 reservations without a machine\n")
}
