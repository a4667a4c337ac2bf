package scaler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tidewait/internal/wadm"
)

// Codes of what keeps a scaler from being satisfied.
const (
	CodeNoLiveHosts    = "no_live_hosts"
	CodeNoEligibleHost = "no_eligible_host"
	CodeNotEnoughHosts = "not_enough_hosts" // a provider runs at most once on each
	CodeHostsTaken     = "hosts_taken"      // by other spreads, or by foreign instances
)

// report collects what is to be said of one scaler.
type report struct {
	subjects  []string // whose failures are its own
	faults    []cause
	waiting   []cause
	doing     []string
	hosts     map[string]int // hosts that something is done on, by what
	unhealthy int            // providers
}

type cause struct{ code, sentence string }

func (r *report) fails(code, sentence string) { r.faults = append(r.faults, cause{code, sentence}) }
func (r *report) waits(code, sentence string) { r.waiting = append(r.waiting, cause{code, sentence}) }
func (r *report) does(what string)            { r.doing = append(r.doing, what) }

// doesOn counts a host that something is done on.
func (r *report) doesOn(what string) {
	if r.hosts == nil {
		r.hosts = map[string]int{}
	}
	r.hosts[what]++
}

// What is done on hosts.
const (
	starting = "starting"
	scaling  = "scaling"
	stopping = "stopping"
)

func (r *report) work() []string {
	all := slices.Clone(r.doing)
	for _, what := range []string{stopping, starting, scaling} {
		if n := r.hosts[what]; n > 0 {
			all = append(all, fmt.Sprintf("%s on %s", what, hosts(n)))
		}
	}
	return all
}

func hosts(n int) string {
	if n == 1 {
		return "1 host"
	}
	return fmt.Sprintf("%d hosts", n)
}

// rows returns the status of each desired scaler, and of failures that are none
// of theirs.
func (p *planner) rows(failures Backoff) (rows []wadm.ScalerStatus, troubles []wadm.StatusInfo) {
	told := map[Key]bool{}
	for i, s := range p.Desired {
		r := p.reports[p.first(i)]
		var own Backoff
		for _, f := range failures {
			if slices.Contains(r.subjects, f.Subject) {
				own = append(own, f)
				told[f.Key] = true
			}
		}
		row := wadm.ScalerStatus{ID: s.ID, Kind: s.Kind, Name: s.Name, Status: p.status(r, own)}
		p.stamp(&row)
		rows = append(rows, row)
	}
	for _, f := range failures {
		if !told[f.Key] {
			troubles = append(troubles, p.failed(Backoff{f}, nil))
		}
	}
	return rows, troubles
}

// NoLiveHosts is the sentence of CodeNoLiveHosts.
func NoLiveHosts(lattice string) string {
	return fmt.Sprintf("no host of lattice %s is alive; nothing is started until one appears", lattice)
}

func (p *planner) status(r report, failures Backoff) wadm.StatusInfo {
	work := r.work()
	switch {
	case len(p.hosts) == 0:
		return wadm.StatusInfo{
			Type: wadm.Waiting, Reason: CodeNoLiveHosts,
			Message: NoLiveHosts(p.Lattice),
		}
	case len(failures)+len(r.faults) > 0:
		return p.failed(failures, append(r.faults, r.waiting...))
	case len(r.waiting) > 0:
		return wadm.StatusInfo{Type: wadm.Waiting, Reason: r.waiting[0].code, Message: join(sentences(r.waiting))}
	case len(work) > 0:
		return wadm.StatusInfo{Type: wadm.Reconciling, Message: join(work)}
	case r.unhealthy > 0:
		return wadm.StatusInfo{Type: wadm.Unhealthy, Message: "the provider is unhealthy on " + hosts(r.unhealthy)}
	}
	return wadm.StatusInfo{Type: wadm.Deployed}
}

// failed tells of failures in the hosts' own words, each once, and of causes.
func (p *planner) failed(failures Backoff, causes []cause) wadm.StatusInfo {
	info := wadm.StatusInfo{Type: wadm.Failed}
	var words []string
	var next, since time.Time
	for _, f := range failures {
		if info.Reason == "" {
			info.Reason = f.Code
		}
		if !slices.Contains(words, f.Message) {
			words = append(words, f.Message)
		}
		info.Attempt = max(info.Attempt, f.Attempts)
		if next.IsZero() || f.Next.Before(next) {
			next = f.Next
		}
		if since.IsZero() || f.Since.Before(since) {
			since = f.Since
		}
	}
	if len(failures) > 0 {
		info.Since = &since
		words[len(words)-1] += fmt.Sprintf(" (attempt %d, %s)", info.Attempt, p.when(next))
		if next.After(p.Now) {
			info.NextAttempt = &next
		}
	} else {
		info.Reason = causes[0].code
	}
	info.Message = join(append(words, sentences(causes)...))
	return info
}

func (p *planner) when(next time.Time) string {
	if next.After(p.Now) {
		return "next attempt " + next.UTC().Format(time.RFC3339)
	}
	return "trying again now"
}

// stamp gives a row that waits or has failed the time since when: that of the
// last status when it said the same, or when no row of it did, that of before
// the deployment.
func (p *planner) stamp(row *wadm.ScalerStatus) {
	info := &row.Status
	if info.Reason == "" || info.Since != nil {
		return
	}
	since, told := p.Now, false
	for _, was := range p.Previous {
		if was.Status.Reason != info.Reason || was.Status.Since == nil {
			continue
		}
		told = true
		if was.ID == row.ID && was.Status.Type == info.Type {
			since = *was.Status.Since
		}
	}
	if waited, ok := p.Waited[info.Reason]; ok && !told {
		since = waited
	}
	info.Since = &since
}

func sentences(causes []cause) []string {
	var all []string
	for _, c := range causes {
		all = append(all, c.sentence)
	}
	return all
}

func join(parts []string) string { return strings.Join(parts, ", ") }
