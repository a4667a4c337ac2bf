package capacity

import "time"

// Held is the hold of a decision.
type Held struct {
	Owner  int64
	NodeID string
	At     time.Duration // from now; negative: not known
}

// Decide is Pass without its words and estimates, for those who ask a million
// times. held is nil when nothing is held.
func Decide(fleet []Node, queue []Waiting) (verdicts []Verdict, held *Held) {
	w := decide(fleet, queue)
	if w.hold == nil {
		return w.verdicts, nil
	}
	held = &Held{w.hold.owner, w.hold.machine.node.ID, w.hold.at}
	if held.At == never {
		held.At = -1
	}
	return w.verdicts, held
}
