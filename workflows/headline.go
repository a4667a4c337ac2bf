package workflows

import (
	"strings"

	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
)

// headlines say what a code of a wait for capacity means. They stay true for as
// long as the code does, unlike the sentence of a look, which names numbers.
var headlines = map[capacity.Code]string{
	capacity.CodeCPU:               "every node that could run it is full, and lacks CPUs most",
	capacity.CodeMemory:            "every node that could run it is full, and lacks memory most",
	capacity.CodeDisk:              "every node that could run it is full, and lacks disk most",
	capacity.CodeSlots:             "every node that could run it runs as many machines as it may",
	capacity.CodeFragmented:        "the nodes together have room for its machines, and no node alone has",
	capacity.CodeBehindInQueue:     "others ahead of it in line got the room",
	capacity.CodeHeldForHead:       "there is room, on a node that is held for the first in line",
	capacity.CodeStartingLimit:     "there is room, on a node that is starting as many machines as it may",
	capacity.CodeNodesDraining:     "every node that could run it is cordoned, draining or drained",
	capacity.CodeNodesLost:         "the nodes that could run it do not report",
	capacity.CodeNoNodesRegistered: "no node is registered",
	capacity.CodeNotEvaluated:      "it has not been looked at yet",
	capacity.CodePlacerUnavailable: "the placer does not answer",
}

// headlineLength bounds a headline, in bytes. Temporal's SQL stores keep 255
// characters of a keyword, and fail to list a workflow that has more.
const headlineLength = 200

// headline says in a list why something waits.
func (w wait) headline() string {
	words, ok := headlines[capacity.Code(w.code)]
	if w.kind != ledger.KindCapacity || !ok {
		words = strings.Join(strings.Fields(w.reason), " ")
		if at := strings.LastIndex(words, " (attempt "); at > 0 { // behind it is how often and when, which changes with each try
			words = words[:at]
		}
		return clipTo(headlineLength, words)
	}
	if needs, _, more := strings.Cut(w.reason, "; "); more && strings.HasPrefix(needs, "needs ") {
		words += "; it " + needs
	}
	return clipTo(headlineLength, words)
}
