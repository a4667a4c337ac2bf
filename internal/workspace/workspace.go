// Package workspace moves a mission's files. On the gateway it keeps one bare
// git repository per mission, gives out a commit's files as a tar stream and
// commits what a phase brings back. Beside the CLI it bundles a local repository
// or directory and fetches results into a repository.
//
// It runs the git binary with an environment and a configuration of its own: no
// hooks, no filters, no prompts, no transport that was not allowed. File names
// that come from a guest are never used as names on the host: results are read
// into one spool file and go from there into git's object store.
//
// Everything here may be called concurrently. Errors that people or code decide
// on are a [*Refused] or a [*Superseded]; any other error is a fault of the
// machine and may go away when tried again.
package workspace

import "fmt"

// Code says why something was refused, for code to decide on.
type Code string

// The closed list of codes.
const (
	BadURL          Code = "workspace_bad_url"    // an address or path that is not allowed
	BadRef          Code = "workspace_bad_ref"    // a branch, tag or commit that is not there or cannot be
	Unreadable      Code = "workspace_unreadable" // a source that cannot be read
	Empty           Code = "workspace_empty"      // a repository without a commit
	Damaged         Code = "workspace_damaged"    // a bundle that did not arrive whole
	Missing         Code = "workspace_missing"    // a mission, launch, phase or commit this gateway does not have
	Diverged        Code = "workspace_diverged"   // a branch of the same name that holds other commits
	ResultsRefused  Code = "results_refused"      // results that break a rule
	ResultsTooLarge Code = "results_too_large"    // results beyond the limits
	ResultsDamaged  Code = "results_damaged"      // results that did not arrive whole
	ResultsConflict Code = "results_conflict"     // results of several machines that contradict each other
)

// Refused is an answer that trying again does not change. Message is one
// sentence for people.
type Refused struct {
	Code    Code
	Message string
}

func (r *Refused) Error() string { return r.Message }

func refuse(code Code, format string, args ...any) *Refused {
	return &Refused{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Superseded says that a branch was moved by another run, so that the results of
// this one are not wanted any more.
type Superseded struct {
	Branch   string
	Run      string // the run that came late
	Expected string // the commit it started from
	Actual   string // where the branch is
}

func (s *Superseded) Error() string {
	return fmt.Sprintf("run %s was superseded: it started from commit %.12s, but branch %s is at %.12s", s.Run, s.Expected, s.Branch, s.Actual)
}

// Branch returns the name of the branch of a mission's launch.
func Branch(mission string, launch int) string {
	return fmt.Sprintf("tidewait/%s/%d", mission, launch)
}

func branchRef(mission string, launch int) string { return "refs/heads/" + Branch(mission, launch) }

// baseRef keeps the commit a launch started from.
func baseRef(launch int) string { return fmt.Sprintf("refs/tidewait/base/%d", launch) }

// passingRefs are the refs of one piece of work, which remove themselves with it.
const passingRefs = "refs/tidewait/passing/"

// bundleRef is the one ref of a bundle made for a gateway.
const bundleRef = "refs/heads/tidewait"

// Limits bound what a phase may bring back.
type Limits struct {
	Files int   // files, directories and links, and as many deletions
	Bytes int64 // content of all files
}

// DefaultLimits are used where a field of [Limits] is 0.
var DefaultLimits = Limits{Files: 100_000, Bytes: 2 << 30}

func (l Limits) orDefault() Limits {
	if l.Files == 0 {
		l.Files = DefaultLimits.Files
	}
	if l.Bytes == 0 {
		l.Bytes = DefaultLimits.Bytes
	}
	return l
}
