package lattice

// Stats count what an observer has met since it began.
type Stats struct {
	Events      uint64 `json:"events"`      // that were read
	Duplicates  uint64 `json:"duplicates"`  // of events; passed over
	Unknown     uint64 `json:"unknown"`     // events of unknown types; passed over
	Unreadable  uint64 `json:"unreadable"`  // events; passed over
	Dropped     uint64 `json:"dropped"`     // times that events were lost because too many came at once
	Foreign     uint64 `json:"foreign"`     // hosts that answered for another lattice; passed over
	Strangers   uint64 `json:"strangers"`   // unknown hosts not asked because there were too many
	Inventories uint64 `json:"inventories"` // that hosts were asked for
	Unanswered  uint64 `json:"unanswered"`  // of those, without an answer that can be read
	Resyncs     uint64 `json:"resyncs"`
	Hosts       int    `json:"hosts"` // alive now
}

// recent remembers the ids of the last events, so that one that comes twice
// counts once.
type recent struct {
	ids  map[string]bool
	ring []string
	next int
}

const remembered = 4096

// add reports whether an id is new.
func (r *recent) add(id string) bool {
	if r.ids[id] {
		return false
	}
	if r.ids == nil {
		r.ids, r.ring = make(map[string]bool, remembered), make([]string, remembered)
	}
	delete(r.ids, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % remembered
	r.ids[id] = true
	return true
}
