package capacity_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/capacity"
)

// TestSoloAndComposedGetTheSameAnswer asks for the same sum once in one machine and
// once in several, where a machine costs nothing beyond its share. Both get the
// same node, and the same refusal but for the number of machines, and for the one
// cause that only several can have: room that is there in sum.
func TestSoloAndComposedGetTheSameAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := anyFleet(t)
		for i := range fleet {
			fleet[i].Allocatable.Slots, fleet[i].Free.Slots, fleet[i].StartLimit = 1000, 1000, 0
			for name, offer := range fleet[i].Backends {
				offer.Overhead = capacity.Resources{}
				fleet[i].Backends[name] = offer
			}
		}
		solo := anyDemand(t)
		solo.Resources.Slots = 1
		composed := solo
		composed.Resources.Slots = rapid.Int64Range(2, 32).Draw(t, "machines")

		one, oneErr := capacity.Admit(fleet, solo)
		several, severalErr := capacity.Admit(fleet, composed)

		require.Equal(t, one.NodeID, several.NodeID)
		var (
			refused, refusedToo     *capacity.CapacityRefusal
			incapable, incapableToo *capacity.CapabilityRefusal
		)
		require.Equal(t, errors.As(oneErr, &refused), errors.As(severalErr, &refusedToo))
		require.Equal(t, errors.As(oneErr, &incapable), errors.As(severalErr, &incapableToo))
		machines := strconv.FormatInt(composed.Resources.Slots, 10) + " machines"
		asOne := strings.NewReplacer(machines+" with ", "", " in all", "", " for "+machines, "")
		switch {
		case incapable != nil:
			require.Equal(t, incapable.Code, incapableToo.Code)
			require.Equal(t, incapable.Sentence, asOne.Replace(incapableToo.Sentence))
			require.Equal(t, incapable.Nodes, incapableToo.Nodes)
		case refused != nil && refusedToo.Code != "capacity_fragmented":
			require.Equal(t, refused.Code, refusedToo.Code)
			require.Equal(t, refused.Sentence, asOne.Replace(refusedToo.Sentence))
			require.Equal(t, refused.Nodes, refusedToo.Nodes)
		case refused != nil:
			require.Equal(t, refused.Counts, refusedToo.Counts)
			require.Equal(t, refused.Nodes, refusedToo.Nodes)
			require.Contains(t, refusedToo.Sentence, " free in sum, but the nearest, "+refused.BestNode+", is short by ")
		}
	})
}
