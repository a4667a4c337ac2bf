package capacity

import "time"

// Rank returns a demand's place in its queue as a moment: of two demands the one
// with the earlier rank is ahead. A demand that has waited for ageing ranks like
// one whose priority is higher by one and that has just asked. So nobody is
// overtaken for longer than ageing times the difference of priorities.
//
// Ranks do not change while a demand waits: priority + waited/ageing grows for
// all of them alike, so that comparing it at any moment is comparing
// since - priority × ageing. ageing is above zero.
func Rank(priority int, since time.Time, ageing time.Duration) time.Time {
	return since.Add(-time.Duration(priority) * ageing)
}
