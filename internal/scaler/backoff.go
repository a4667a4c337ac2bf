package scaler

import (
	"slices"
	"strings"
	"time"

	"tidewait/internal/wadm"
)

// Bounds of the time between two tries.
const (
	FirstDelay = time.Second
	MostDelay  = 5 * time.Minute
	jitter     = 0.2 // of a delay, to both sides
)

// Codes of failures that a host or the way to it is the cause of.
const (
	CodeCommandFailed   = "command_failed"    // it was begun and did not succeed
	CodeCommandRefused  = "command_refused"   // the host said no
	CodeCommandTimedOut = "command_timed_out" // nobody said anything
)

// Failure is a command that did not succeed, as often as it was tried.
type Failure struct {
	Key
	Code     string    `json:"code"`
	Message  string    `json:"message"`  // the last one, in the host's own words
	Attempts int       `json:"attempts"` // in a row
	Since    time.Time `json:"since"`    // of the first one in the row
	Next     time.Time `json:"next"`     // not before then again
	// Recalled says that it is known from a status alone, which does not say on
	// which host it was.
	Recalled bool `json:"recalled,omitempty"`
}

// Backoff is the failures that matter, at most one for each key. Its methods
// return a new one and leave their receiver as it is.
type Backoff []Failure

// Find returns the failure of a key.
func (b Backoff) Find(k Key) (Failure, bool) {
	i := slices.IndexFunc(b, func(f Failure) bool { return f.Key == k })
	if i < 0 {
		return Failure{}, false
	}
	return b[i], true
}

// Failed counts one more failure of a key and says when to try again: after one
// second, and twice as long each time. random is from [0, 1), so that many that
// failed together do not come back together.
func (b Backoff) Failed(k Key, code, message string, now time.Time, random float64) Backoff {
	recalled := Key{Subject: k.Subject}
	f, known := b.Find(k)
	if !known {
		if f, known = b.Find(recalled); known && f.Recalled {
			b = b.Without(func(o Failure) bool { return o.Key == recalled })
		} else {
			f = Failure{Since: now}
		}
	}
	f.Key, f.Code, f.Message, f.Recalled = k, code, message, false
	f.Attempts++
	f.Next = now.Add(delay(f.Attempts, random))
	return append(b.Without(func(o Failure) bool { return o.Key == k }), f)
}

// Recall returns b, or when that is empty the failures that the rows of the last
// status tell of: whoever kept b has begun anew, and what was true before still
// is. They are tried again at once.
func (b Backoff) Recall(rows []wadm.ScalerStatus, now time.Time) Backoff {
	if len(b) > 0 {
		return b
	}
	var recalled Backoff
	for _, row := range rows {
		was := row.Status
		if was.Type != wadm.Failed || was.Attempt == 0 || was.Since == nil {
			continue
		}
		words := was.Message
		if at := strings.LastIndex(words, " (attempt "); at >= 0 { // behind it is when, see planner.failed
			words = words[:at]
		}
		recalled = append(recalled, Failure{
			Key: Key{Subject: row.ID}, Code: was.Reason, Message: words,
			Attempts: was.Attempt, Since: *was.Since, Next: now, Recalled: true,
		})
	}
	return recalled
}

// Without forgets failures: of a key that succeeded, of a host that started
// again, of a scaler whose configuration changed, of all that was deployed anew.
func (b Backoff) Without(forget func(Failure) bool) Backoff {
	return slices.DeleteFunc(slices.Clone(b), forget)
}

// held reports whether it is too early to try again.
func (b Backoff) held(k Key, now time.Time) bool {
	f, ok := b.Find(k)
	return ok && f.Next.After(now)
}

// delay is the time between a number of failures in a row and the next try.
func delay(attempts int, random float64) time.Duration {
	d := MostDelay
	if doublings := attempts - 1; doublings < 16 {
		d = min(FirstDelay<<max(doublings, 0), MostDelay)
	}
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*random))
}
