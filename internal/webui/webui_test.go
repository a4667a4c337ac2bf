package webui_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/webui"
)

func TestWordsOfOthersAreNoMarkup(t *testing.T) {
	require.Equal(t, `\[click](http://evil) \<script> \*x\* \\ then`, webui.Plain("[click](http://evil)\n <script> *x*\t\\ then"))
	require.Equal(t, `\[ann](http://evil)`, webui.By("[ann](http://evil)"))
	require.Equal(t, "somebody", webui.By(""))
}

func TestYouCan(t *testing.T) {
	require.Empty(t, webui.YouCan())
	require.Equal(t, "\n**you can**\n\n"+
		"- mend it\n"+
		"- look: `tidewait node list`\n"+
		"- try now: `tidewait phase nudge m p`, or signal `nudge` with input `{\"actor\": \"you\"}`\n"+
		"- see why: [lattice.default.a b](/namespaces/{namespace}/workflows/lattice.default.a%20b)\n"+
		"- odd: `` tidewait lattice show 'a`b' ``\n",
		webui.YouCan(
			api.Remedy{What: "mend it"},
			api.Remedy{What: "look", Command: "tidewait node list"},
			api.Remedy{What: "try now", Command: "tidewait phase nudge m p", Signal: "nudge", Input: `{"actor": "you"}`},
			api.Remedy{What: "see why", Command: "tidewait lattice show 'a b'", Workflow: "lattice.default.a b"},
			api.Remedy{What: "odd", Command: "tidewait lattice show 'a`b'"},
		))
}
