package ledger

import "time"

// KindHold is the kind of a wait for a release.
const KindHold = "hold"

// Codes of the waits of a phase that is not in the queue.
const (
	CodeAwaitingRelease = "awaiting_release"
	CodeCommandFailed   = "command_failed"
)

// What a person does to a mission or a phase by hand.
const (
	ActNudge   = "nudge"
	ActCancel  = "cancel"
	ActRelease = "release"
)

// Act is something a person did: who, what and, where it was said, why.
type Act struct {
	Key   string `json:"key"` // the same for the same signal, however often it is recorded
	Verb  string `json:"verb"`
	Actor string `json:"actor,omitempty"`
	Note  string `json:"note,omitempty"`
}

// Hold is what a document says of a phase that somebody has to release.
type Hold struct {
	Reason  string        `json:"reason,omitempty"`
	MaxWait time.Duration `json:"maxWait,omitempty"` // nanoseconds; 0: no bound
}

// Gate is what stands between a phase and its queue, and what has happened to it
// since the last look.
type Gate struct {
	Hold    *Hold `json:"hold,omitempty"`    // of the document
	Attempt int   `json:"attempt,omitempty"` // that the pause came before which Resume has ended; 0: any
	Release *Act  `json:"release,omitempty"` // somebody released it
	Resume  Wake  `json:"resume,omitempty"`  // what ended its back-off; empty: nothing has
	By      *Act  `json:"by,omitempty"`      // who did, when a person
	Expire  bool  `json:"expire,omitempty"`  // the bound of its hold is reached
}

// Pause is a phase that does not ask for a node yet: it is held, or it backs off
// after a failed attempt.
type Pause struct {
	Kind     string        `json:"kind"` // KindHold or KindBackoff
	Code     string        `json:"code"`
	Attempt  int           `json:"attempt,omitempty"` // that comes after a back-off
	Sentence string        `json:"sentence"`
	Since    time.Time     `json:"since"`          // stamped once, by the database's clock
	Bound    time.Time     `json:"bound,omitzero"` // when a hold fails by itself; zero: never
	Next     time.Time     `json:"next,omitzero"`  // when a back-off is over
	Left     time.Duration `json:"left,omitempty"` // nanoseconds until Bound or Next, by the database's clock
}

// BackOff asks for a pause after an attempt that failed.
type BackOff struct {
	PhaseID  int64         `json:"phaseId"`
	Attempt  int           `json:"attempt"`  // of placement
	Attempts int           `json:"attempts"` // that the document allows
	First    time.Duration `json:"first"`    // nanoseconds of the first pause; each is twice the one before
	Run      RunEnd        `json:"run"`
}

// BackedOff is what became of it.
type BackedOff struct {
	Attempt int `json:"attempt"` // the phase is at
	// Exhausted says that no attempt is left. The run is still open then.
	Exhausted bool `json:"exhausted,omitempty"`
}

// LongestPause is between two attempts at most.
const LongestPause = 5 * time.Minute

// PauseAfter returns the pause after n failed attempts, n from 1.
func PauseAfter(n int, first time.Duration) time.Duration {
	pause := first
	for ; n > 1 && pause < LongestPause; n-- {
		pause *= 2
	}
	return min(pause, LongestPause)
}
