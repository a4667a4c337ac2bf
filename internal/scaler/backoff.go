package scaler

import (
	"slices"
	"time"
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
	f, known := b.Find(k)
	if !known {
		f = Failure{Key: k, Since: now}
	}
	f.Code, f.Message = code, message
	f.Attempts++
	f.Next = now.Add(delay(f.Attempts, random))
	return append(b.Without(func(o Failure) bool { return o.Key == k }), f)
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
