package boot

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBootGoesOn(t *testing.T) {
	before := Now()
	require.Positive(t, before)
	require.GreaterOrEqual(t, Now(), before)
}
