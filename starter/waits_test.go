package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
)

// everyField is a wait in which everything is said.
func everyField() api.Wait {
	at := func(d time.Duration) *time.Time { t := since.Add(d); return &t }
	return api.Wait{
		Kind: "capacity", Code: "capacity_memory", Reason: "needs 2048 MiB; node-b is short by 512 MiB",
		Mission: "m", Phase: "build", Account: "default", Lattice: "prod", Application: "shop", WorkflowID: "phase.m.build",
		Pool: "microvm", Node: "node-c", Gateway: "gw-a", Since: since, Bound: at(2 * time.Hour), CheckedAt: at(time.Minute), NextCheck: at(70 * time.Second),
		Attempts: 7, Position: 2, Ahead: []string{"n/build"},
		Need:    &capacity.Resources{CPUMilli: 2000, MemoryMiB: 2208, DiskMiB: 1024, Slots: 1},
		ShortBy: &capacity.Resources{MemoryMiB: 512}, BestNode: "node-b",
		Counts:   &capacity.Counts{Fit: 1, Full: 2, Starting: 3, Held: 4, Cordoned: 5, Draining: 6, Lost: 7, Incapable: 8},
		Nodes:    []capacity.NodeReason{{NodeID: "node-b", Why: "short by 512 MiB of memory"}},
		StartsBy: at(time.Hour), StartsOn: "node-b", StartsHeld: true, FreesAt: at(30 * time.Minute), FreesNode: "node-a",
		WokenBy:  map[string]int{"first": 1, "timer": 6},
		NextLook: "likewise", YouCan: []api.Remedy{{What: "what the command line puts its own in the place of"}},
	}
}

// TestTheListOfWaitsAsJSON is the promise that scripts rely on: these keys, with
// these meanings and units, are there in every later version.
func TestTheListOfWaitsAsJSON(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectWaitList, always(api.WaitList{Now: since.Add(time.Minute), Waits: []api.Wait{everyField()}, More: true}))
	got := b.run("waits", "-o", "json")
	golden, err := os.ReadFile("testdata/waits.json")
	require.NoError(t, err)
	require.Equal(t, outcome{0, string(golden), ""}, got)

	fields := reflect.TypeFor[api.Wait]()
	value := reflect.ValueOf(everyField())
	page, err := os.ReadFile("../docs/list-of-waits.md")
	require.NoError(t, err)
	const unclocked = 1 // nextLook is told where nextCheck is not
	for i := range fields.NumField() {
		require.False(t, value.Field(i).IsZero(), "%s is not in the golden file", fields.Field(i).Name)
		key, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		require.Contains(t, string(page), "\n| `"+key+"` |", "the page does not say what it is")
	}
	for _, kind := range api.WaitKinds() {
		for _, code := range api.WaitCodes(kind) {
			require.Contains(t, string(page), "`"+code+"`", "a code of kind %s", kind)
		}
	}
	var list struct{ Waits []map[string]any }
	require.NoError(t, json.Unmarshal(golden, &list))
	require.Len(t, list.Waits[0], fields.NumField()-unclocked)
}

func TestNothingWaitsWithSuchFilters(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectWaitList, always(api.WaitList{Now: since, Waits: []api.Wait{}}))
	require.Equal(t, outcome{0, "nothing waits\n", ""}, b.run("waits"))
	require.Equal(t, outcome{0, "nothing waits with --mission m --node node-a --older-than 10m0s\n", ""},
		b.run("waits", "--mission", "m", "--node", "node-a", "--older-than", "10m"))
	require.Equal(t, []string{`{}`, `{"mission":"m","node":"node-a","olderThanMs":600000}`}, b.requests(api.SubjectWaitList))
}

func TestMoreWaitsThanAreListed(t *testing.T) {
	b := newBus(t)
	list := exampleWaits()
	list.More = true
	b.answer(api.SubjectWaitList, always(list))
	require.Contains(t, b.run("waits").out, "\nonly the 1 oldest are listed; filters show others\n")
}

func TestCompletionOfTheFiltersOfWaits(t *testing.T) {
	b := newBus(t)
	b.answer(api.SubjectWaitList, always(api.WaitList{Waits: []api.Wait{
		{Mission: "m", Phase: "build"}, {Mission: "n", Phase: "build"}, {Lattice: "prod", Application: "shop"},
	}}))
	b.answer(api.SubjectMissionList, always(api.MissionList{Missions: []api.Mission{{Name: "m"}, {Name: "n"}}}))
	b.answer(api.SubjectNodeList, always(api.NodeList{Nodes: []api.Node{{ID: "node-a"}}}))
	b.answer(api.SubjectLatticeList, always(api.LatticeList{Lattices: []api.Lattice{{Account: "a", Lattice: "prod"}, {Account: "b", Lattice: "prod"}}}))
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--kind", ""}, "capacity node gateway hold observer lattice backoff dependency"},
		{[]string{"--kind", "gateway", "--code", ""}, "gateway_unreachable results_bucket_full"},
		{[]string{"--mission", ""}, "m n"},
		{[]string{"--phase", ""}, "build"},
		{[]string{"--node", ""}, "node-a"},
		{[]string{"--lattice", ""}, "prod"},
		{[]string{"--app", ""}, "shop"},
	} {
		got := tidewait(append([]string{"__complete", "waits", "--nats.url", b.url}, test.args...)...)
		require.Equal(t, test.want, strings.Join(strings.Fields(strings.TrimSuffix(got.out, ":4\n")), " "), "%v: %s", test.args, got.errors)
	}
}
