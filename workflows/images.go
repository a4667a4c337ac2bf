package workflows

import "go.temporal.io/sdk/workflow"

// An image's name is looked up once in a launch: by the first run that uses it.
// What it leads to goes on from run to run and from phase to phase, so that no
// tag that is moved meanwhile changes what a mission runs.

// images are the digests that names of images led to so far.
func (p *phase) images() map[string]string { return pinned(p.in.Images, p.progress.Images) }

// pin keeps what a run has found. What was known before counts.
func (p *phase) pin(found map[string]string) {
	p.progress.Images = pinned(found, p.progress.Images)
}

// pinned joins digests; those of first are there before those of then, which count
// where both have one.
func pinned(first, then map[string]string) map[string]string {
	if len(first)+len(then) == 0 {
		return nil
	}
	all := map[string]string{}
	for _, digests := range []map[string]string{first, then} {
		for _, name := range workflow.DeterministicKeys(digests) {
			all[name] = digests[name]
		}
	}
	return all
}
