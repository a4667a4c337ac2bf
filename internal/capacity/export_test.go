package capacity

// Decide is Pass without its words and estimates, for those who ask a million
// times. held is nil when nothing is held.
func Decide(fleet []Node, queue []Waiting, others ...Other) (verdicts []Verdict, held *Hold) {
	w := decide(fleet, queue, others)
	return w.verdicts, w.hold
}
