package workflows_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/workflows"
)

// TestATagIsLookedUpOnceInALaunch follows what names led to: from an attempt that
// failed to the next one, and to the phase after.
func TestATagIsLookedUpOnceInALaunch(t *testing.T) {
	e := newEnv(t)
	runs := 0
	e.executeRun = func(context.Context, workflows.ExecuteRunInput) (workflows.ExecuteRunResult, error) {
		runs++
		switch runs {
		case 1:
			return workflows.ExecuteRunResult{
				FailureCode: "boot_failed", Failure: "the machine did not start", Images: map[string]string{"r/tool:1": "sha256:first"},
			}, nil
		case 2: // a node that did not listen
			res := ran()
			res.Images = map[string]string{"r/tool:1": "sha256:moved", "r/other:1": "sha256:other"}
			return res, nil
		}
		return ran(), nil
	}
	e.send(0)
	res, err := e.mission()
	require.NoError(t, err)
	require.Equal(t, "succeeded", res.Status)

	in := inputs[workflows.ExecuteRunInput](e.fakes)
	require.Len(t, in, 3)
	require.Nil(t, in[0].Images)
	require.Equal(t, map[string]string{"r/tool:1": "sha256:first"}, in[1].Images)
	require.Equal(t, map[string]string{"r/tool:1": "sha256:first", "r/other:1": "sha256:other"}, in[2].Images, "what was known first counts")
	require.Equal(t, []string{"survey", "survey", "report"}, []string{in[0].Phase, in[1].Phase, in[2].Phase})
}
