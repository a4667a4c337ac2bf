package capacity_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/capacity"
)

func imageNode(id string, free int64, images ...string) capacity.Node {
	room := capacity.Resources{CPUMilli: free, MemoryMiB: free, DiskMiB: free, Slots: free}
	return capacity.Node{
		ID: id, State: capacity.Ready, Arch: "amd64", Backends: map[string]capacity.Offer{"microvm": {OK: true}},
		Allocatable: capacity.Resources{CPUMilli: 100, MemoryMiB: 100, DiskMiB: 100, Slots: 100}, Free: room, Images: images,
	}
}

func TestNodesWithTheImagesArePreferred(t *testing.T) {
	fleet := []capacity.Node{
		imageNode("tight", 10), imageNode("has-one", 50, "a"), imageNode("has-both", 90, "b", "c", "a"), imageNode("has-both-full", 1, "a", "b"),
	}
	for want, images := range map[string][]string{"tight": nil, "has-one": {"a"}, "has-both": {"a", "b"}} {
		d := capacity.Demand{Backend: "microvm", Resources: capacity.Resources{CPUMilli: 5, MemoryMiB: 5, DiskMiB: 5, Slots: 1}, Images: images}
		p, err := capacity.Admit(fleet, d)
		require.NoError(t, err)
		require.Equal(t, want, p.NodeID)
		require.Equal(t, want, capacity.Pass(fleet, []capacity.Waiting{{ID: 1, Demand: d}})[0].Placement.NodeID)
	}
	p, err := capacity.Admit(fleet, capacity.Demand{Backend: "microvm", Resources: capacity.Resources{CPUMilli: 5, MemoryMiB: 5, Slots: 1}, Images: []string{"nobody has it"}})
	require.NoError(t, err)
	require.Equal(t, "tight", p.NodeID, "no node has to have it")
}

// TestEqualDemandsWithOtherImages are judged as one, and placed each on its own.
func TestEqualDemandsWithOtherImages(t *testing.T) {
	fleet := []capacity.Node{imageNode("a-node", 50, "a"), imageNode("b-node", 50, "b")}
	ask := capacity.Resources{CPUMilli: 5, MemoryMiB: 5, Slots: 1}
	var queue []capacity.Waiting
	for i, image := range []string{"b", "a", "b", "a"} {
		queue = append(queue, capacity.Waiting{ID: int64(i), Demand: capacity.Demand{Backend: "microvm", Resources: ask, Images: []string{image}}})
	}
	var nodes []string
	for _, v := range capacity.Pass(fleet, queue) {
		nodes = append(nodes, v.Placement.NodeID)
	}
	require.Equal(t, []string{"b-node", "a-node", "b-node", "a-node"}, nodes)
}

var someImages = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 3, rapid.ID[string])

// TestImagesDecideOnlyWhere lets any fleet and any queue have any images: whether
// a demand is admitted in its turn, and what it is refused with, are as without.
func TestImagesDecideOnlyWhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, d := anyFleet(t), anyDemand(t)
		placement, err := capacity.Admit(fleet, d)
		capable := capacity.Capable(fleet, d)
		for i := range fleet {
			fleet[i].Images = someImages.Draw(t, "of the node")
		}
		d.Images = someImages.Draw(t, "of the demand")
		preferred, preferredErr := capacity.Admit(fleet, d)
		require.Equal(t, err, preferredErr)
		require.Equal(t, capable, capacity.Capable(fleet, d))
		if err != nil {
			return
		}
		has := func(id string) int {
			i := slices.IndexFunc(fleet, func(n capacity.Node) bool { return n.ID == id })
			return len(slices.DeleteFunc(slices.Clone(d.Images), func(image string) bool { return !slices.Contains(fleet[i].Images, image) }))
		}
		require.GreaterOrEqual(t, has(preferred.NodeID), has(placement.NodeID))
	})
}

// TestImagesNeverChangeTheOrder asks of a whole queue that each demand is admitted
// exactly when it would be without images after those before it were placed where
// they were, and that those which wait stand in the same order.
func TestImagesNeverChangeTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, queue := unknownEnds(anyFleet(t)), anyQueue(t)
		for i := range fleet {
			fleet[i].Images = someImages.Draw(t, "of the node")
		}
		for i := range queue {
			queue[i].Longest = 0
			queue[i].Demand.Images = someImages.Draw(t, "of the demand")
		}
		now, holds, position := slices.Clone(fleet), "", 0
		for i, v := range capacity.Pass(fleet, queue) {
			require.Equal(t, queue[i].ID, v.ID)
			open := slices.Clone(now)
			for j := range open {
				if open[j].ID == holds && open[j].State == capacity.Ready {
					open[j].State = capacity.Cordoned
				}
			}
			plain := queue[i].Demand
			plain.Images = nil
			_, err := capacity.Admit(open, plain)
			require.Equal(t, err == nil, v.Placement != nil)
			if v.Capacity != nil {
				position++
				require.Equal(t, position, v.Position)
			}
			if v.Hold != nil {
				holds = v.Hold.NodeID
			}
			for j := range now {
				if v.Placement != nil && now[j].ID == v.Placement.NodeID {
					now[j].Free = now[j].Free.Sub(v.Placement.Need)
					now[j].Starting += queue[i].Demand.Resources.Slots
				}
			}
		}
	})
}
