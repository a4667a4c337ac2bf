package mission

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrUnknownPhase says that a document has no phase of a name.
var ErrUnknownPhase = errors.New("there is no such phase")

// RerunFrom returns the index of the phase that a rerun begins with. What the
// phases before it made is taken over from an earlier launch, so they must be
// what they were there; the others, and everything else, may have changed. The
// error is [ErrUnknownPhase], or names the first phase that differs.
func (m Mission) RerunFrom(name string, earlier Mission) (int, error) {
	var names []string
	for i, p := range m.Spec.Phases {
		if p.Name == name {
			return i, m.sameBefore(i, earlier)
		}
		names = append(names, p.Name)
	}
	return 0, fmt.Errorf("phase %q of mission %s: %w; its phases are %s", name, m.Name, ErrUnknownPhase, strings.Join(names, ", "))
}

func (m Mission) sameBefore(first int, earlier Mission) error {
	for i, p := range m.Spec.Phases[:first] {
		if i >= len(earlier.Spec.Phases) || !p.equal(earlier.Spec.Phases[i]) {
			return fmt.Errorf("phase %q is not what it was in the launch whose commit would be taken over; rerun from it, or launch the mission again", p.Name)
		}
	}
	return nil
}

func (p Phase) equal(other Phase) bool {
	a, err := json.Marshal(p)
	if err != nil {
		return false
	}
	b, err := json.Marshal(other)
	return err == nil && string(a) == string(b)
}
