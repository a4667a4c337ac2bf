package capacity_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/capacity"
)

// An image that no node has makes no node better than another, and has every
// candidate looked at for every demand.
func TestShortlistsChooseAsLookingAtAllDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := anyFleet(t)
		shapes := anyQueue(t)
		var queue, everyone []capacity.Waiting
		for i := range 3 * len(shapes) {
			item := shapes[i%len(shapes)]
			item.ID = int64(i)
			item.Demand.Images = nil
			queue = append(queue, item)
			item.Demand.Images = []string{"nobody has it"}
			everyone = append(everyone, item)
		}
		require.Equal(t, capacity.Pass(fleet, everyone), capacity.Pass(fleet, queue))
	})
}

// Two shapes in turn: what one was placed on has become the better choice for the
// other as well.
func TestShortlistsSeeWhatOthersPlaced(t *testing.T) {
	var fleet []capacity.Node
	for i := range 4 {
		fleet = append(fleet, node(fmt.Sprintf("n%d", i), func(n *capacity.Node) {
			n.Allocatable = capacity.Resources{CPUMilli: 10_000, MemoryMiB: 10 * gib, DiskMiB: 10 * gib, Slots: 10}
			n.Free, n.StartLimit = n.Allocatable, 0
		}))
	}
	var queue []capacity.Waiting
	for i := range 12 {
		cpu := int64(2000)
		if i%2 == 1 {
			cpu = 3000
		}
		queue = append(queue, capacity.Waiting{ID: int64(i), Longest: time.Hour, Demand: demand(asks(cpu, gib, gib, 1))})
	}
	var got []string
	for _, v := range capacity.Pass(fleet, queue) {
		got = append(got, v.Placement.NodeID)
	}
	require.Equal(t, []string{"n0", "n0", "n0", "n0", "n1", "n1", "n1", "n1", "n2", "n2", "n2", "n2"}, got)
}
