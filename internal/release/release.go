// Package release says what this program is, and which releases of Tidewait's
// programs work together. Every message between them carries both parts of a
// [Release]; a pure function decides.
package release

import (
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
)

// version is set by the linker: -ldflags '-X tidewait/internal/release.version=1.2.3'.
var version = "0.1.0-dev"

// Protocol numbers the messages between Tidewait's programs: heartbeats, requests
// and their replies. It grows when a program would misunderstand one that speaks the
// number before, which a field that may be missing does not bring about.
const Protocol = 1

// Release is what a program says of itself.
type Release struct {
	Version  string // such as 1.2.3 or 1.3.0-dev; empty: it did not say
	Protocol int    // see [Protocol]; 0: it did not say
}

// This returns what this program is.
func This() Release { return Release{Version: version, Protocol: Protocol} }

// BuildID tells one build of this release from another: the version, and where the
// build knows it the commit, as in 1.3.0-dev+8c1f2a90b3d4.
func BuildID() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return version + "+" + s.Value[:12]
		}
	}
	return version
}

func (r Release) String() string {
	if r == (Release{}) {
		return "a release that does not say which"
	}
	return fmt.Sprintf("release %s (protocol %d)", r.Version, r.Protocol)
}

// Verdict is how a program's release suits another's.
type Verdict int

// The verdicts there are.
const (
	Fits Verdict = iota
	TooOld
	TooNew
)

// Judge says how theirs suits mine: they work together when they speak the same
// protocol and are of the same major release, at most one minor release apart, so
// that a fleet can be upgraded piece by piece. What follows the numbers, as in
// 1.3.0-dev, does not count. A release that cannot be read is too old: every
// release since the first says what it is.
func Judge(mine, theirs Release) Verdict {
	myMajor, myMinor, readable := numbers(mine.Version)
	if !readable {
		return TooNew // theirs can be read
	}
	major, minor, readable := numbers(theirs.Version)
	switch {
	case !readable || theirs.Protocol < mine.Protocol:
		return TooOld
	case theirs.Protocol > mine.Protocol:
		return TooNew
	case major < myMajor || major == myMajor && minor < myMinor-1:
		return TooOld
	case major > myMajor || minor > myMinor+1:
		return TooNew
	}
	return Fits
}

// numbers reads the major and the minor number of a version.
func numbers(version string) (major, minor int, ok bool) {
	core, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	core, _, _ = strings.Cut(core, "+")
	parts := strings.Split(core, ".")
	if len(parts) != 3 {
		return 0, 0, false
	}
	var n [3]int
	for i, part := range parts {
		value, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return 0, 0, false
		}
		n[i] = int(value) //nolint:gosec // 31 bits
	}
	return n[0], n[1], true
}

// Codes of a refusal, from the view of who asked.
const (
	CodeTooOld = "release_too_old" // who asks has to be upgraded
	CodeTooNew = "release_too_new" // who answers has to be upgraded
)

// Skew says that two programs do not work together. It is an error of who asked.
type Skew struct {
	Asks, Answers Release
	Verdict       Verdict // of who asks, never [Fits]
}

// Check returns a [*Skew] unless who asks and who answers work together.
func Check(asks, answers Release) *Skew {
	if v := Judge(answers, asks); v != Fits {
		return &Skew{Asks: asks, Answers: answers, Verdict: v}
	}
	return nil
}

// Code is the machine's word for it.
func (s *Skew) Code() string {
	if s.Verdict == TooOld {
		return CodeTooOld
	}
	return CodeTooNew
}

// Refusal is the skew with its code before it, for replies that have no place of its
// own for a code.
func (s *Skew) Refusal() string { return s.Code() + ": " + s.Error() }

// IsRefusal reports whether text is a [Skew.Refusal].
func IsRefusal(text string) bool {
	code, _, _ := strings.Cut(text, ": ")
	return IsCode(code)
}

// IsCode reports whether code is that of a refusal.
func IsCode(code string) bool { return code == CodeTooOld || code == CodeTooNew }

func (s *Skew) Error() string {
	how, remedy := "too old for", "upgrade what asks"
	if s.Verdict == TooNew {
		how, remedy = "too new for", "upgrade what answers, or ask with an older release"
	}
	return fmt.Sprintf("%s is %s %s, which answers: programs work together that speak the same protocol and are at most one minor release apart; %s",
		s.Asks, how, s.Answers, remedy)
}
