package main

import (
	"tidewait/internal/api"
	"tidewait/internal/remedy"
)

// advise adds to a wait what leads to the next look, and what a person can do about
// it; nil: nothing waits.
func advise(w *api.Wait) {
	if w != nil {
		w.NextLook, w.YouCan = api.NextLookAt(*w), remedy.Of(*w)
	}
}

func adviseAll(waits []api.Wait) {
	for i := range waits {
		advise(&waits[i])
	}
}

func adviseMission(m *api.MissionDetail) {
	advise(m.Wait)
	for i := range m.PhaseList {
		advise(m.PhaseList[i].Wait)
	}
}
