package render_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/capacity"
	"tidewait/internal/render"
)

// now is the moment every expected text is seen at.
var now = time.Date(2026, 11, 30, 13, 0, 7, 0, time.UTC)

func at(clock string) time.Time {
	t, err := time.Parse(time.TimeOnly, clock)
	if err != nil {
		panic(err)
	}
	return time.Date(2026, 11, 30, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

func ptr[T any](v T) *T { return &v }

var plainText = render.Options{Now: now}

// fullWait has every field set.
func fullWait() api.Wait {
	return api.Wait{
		Kind: "capacity", Code: "capacity_memory",
		Reason:  "2 CPU and 2208 MiB on backend microvm; the nearest fit is short by 512 MiB of memory on node-b",
		Mission: "m", Phase: "build", WorkflowID: "phase.m.build", Pool: "microvm",
		Since: at("12:19:05"), Bound: ptr(at("14:19:05")),
		CheckedAt: ptr(at("13:00:01")), NextCheck: ptr(at("13:00:11")),
		Attempts: 247, Position: 2, Ahead: []string{"m-71c0/survey"},
		Need:     &capacity.Resources{CPUMilli: 2000, MemoryMiB: 2208, DiskMiB: 1024, Slots: 1},
		ShortBy:  &capacity.Resources{MemoryMiB: 512},
		BestNode: "node-b",
		Counts:   &capacity.Counts{Full: 2, Draining: 1, Lost: 1, Incapable: 1},
		Nodes: []capacity.NodeReason{
			{NodeID: "node-b", Why: "short by 512 MiB of memory"},
			{NodeID: "node-e", Why: "offers no microvm"},
		},
		StartsBy: ptr(at("14:31:00")), StartsOn: "node-a",
		FreesAt: ptr(at("13:31:00")), FreesNode: "node-b",
		WokenBy: map[string]int{"timer": 246, "event": 1},
	}
}

func waitingMission() api.MissionDetail {
	return api.MissionDetail{
		Mission: api.Mission{
			Name: "m", Status: "running", Launch: 2, Backend: "microvm", Phases: 3, PhasesDone: 1, Current: "build",
			Actor: "ann@desk", StartedAt: ptr(at("12:10:00")),
		},
		Gateway: "gw-1", Branch: "tidewait/m/2", BaseCommit: "1a2b3c4d5e6f7a8b9c0d1a2b3c4d5e6f7a8b9c0d",
		PhaseList: []api.Phase{
			{
				Name: "survey", Ordinal: 1, Status: "succeeded", Attempt: 1, Node: "node-a",
				Commit:    "ffeeddccbbaa99887766554433221100ffeeddcc",
				StartedAt: ptr(at("12:11:00")), EndedAt: ptr(at("12:18:30")),
				Waits: []api.PastWait{{
					Kind: "capacity", Code: "capacity_slots", Reason: "every slot is taken",
					Since: at("12:10:01"), Ended: at("12:11:00"), EndedBy: "placed", WokenBy: "event",
				}},
				Runs: []api.Run{{
					ID: "r-1", Attempt: 1, Node: "node-a", Status: "succeeded", Step: "destroy", Accel: "tcg", Kernel: "6.1.0",
					ExitCode: ptr(0), StartedAt: at("12:11:00"), EndedAt: ptr(at("12:18:30")),
				}},
			},
			{Name: "build", Ordinal: 3, Status: "pending", Attempt: 1, Wait: ptr(fullWait())},
		},
	}
}

func TestMissionShowsTheWholeWait(t *testing.T) {
	require.Equal(t, `mission m   running   launch 2   50 min (since 12:10:00Z)
  backend microvm
  by      ann@desk
  gateway gw-1
  branch  tidewait/m/2 from 1a2b3c4d5e6f

phase 1 "survey" of mission m   succeeded   7 min (12:11:00Z to 12:18:30Z)   on node-a
  waited  59 s (12:10:01Z to 12:11:00Z) for capacity, then placed, woken by event; last reason capacity_slots: every slot is taken
  run     r-1, attempt 1 on node-a: succeeded; exit 0; tcg, kernel 6.1.0; 7 min (12:11:00Z to 12:18:30Z)
  commit  ffeeddccbbaa

phase 3 "build" of mission m   pending · waiting for capacity   41 min of 120 (fails 14:19:05Z)
  why     capacity_memory: 2 CPU and 2208 MiB on backend microvm; the nearest fit is short by 512 MiB of memory on node-b
  since   12:19:05Z (41 min ago)
  need    2 CPU, 2208 MiB memory, 1024 MiB disk, 1 slot; short by 512 MiB memory on node-b
  place   2nd in line for microvm, behind m-71c0/survey
  nodes   5 known: 2 full, 1 draining, 1 lost, 1 cannot ever
          node-b: short by 512 MiB of memory
          node-e: offers no microvm
  starts  about 14:31:00Z (in 90 min) on node-a, if every run uses its whole turn and nobody joins the line; its wait fails before that
  frees   earliest 13:31:00Z (in 30 min) if the run on node-b uses its whole turn
  looked  13:00:01Z (6 s ago), attempt 247; next by 13:00:11Z (in 4 s); woken by: timer 246, event 1
  you can free or add a node that has room: tidewait node list
          look now: tidewait phase nudge m build
          give up: tidewait phase cancel m build --reason WHY
`, plainText.Mission(waitingMission()))
}

func TestMissionWrapsToTheTerminal(t *testing.T) {
	o := render.Options{Now: now, Width: 72}
	m := waitingMission()
	m.PhaseList = m.PhaseList[1:]
	require.Equal(t, `mission m   running   launch 2   50 min (since 12:10:00Z)
  backend microvm
  by      ann@desk
  gateway gw-1
  branch  tidewait/m/2 from 1a2b3c4d5e6f

phase 3 "build" of mission m   pending · waiting for capacity   41 min of 120 (fails 14:19:05Z)
  why     capacity_memory: 2 CPU and 2208 MiB on backend microvm; the
          nearest fit is short by 512 MiB of memory on node-b
  since   12:19:05Z (41 min ago)
  need    2 CPU, 2208 MiB memory, 1024 MiB disk, 1 slot; short by 512
          MiB memory on node-b
  place   2nd in line for microvm, behind m-71c0/survey
  nodes   5 known: 2 full, 1 draining, 1 lost, 1 cannot ever
          node-b: short by 512 MiB of memory
          node-e: offers no microvm
  starts  about 14:31:00Z (in 90 min) on node-a, if every run uses its
          whole turn and nobody joins the line; its wait fails before
          that
  frees   earliest 13:31:00Z (in 30 min) if the run on node-b uses its
          whole turn
  looked  13:00:01Z (6 s ago), attempt 247; next by 13:00:11Z (in 4 s);
          woken by: timer 246, event 1
  you can free or add a node that has room: tidewait node list
          look now: tidewait phase nudge m build
          give up: tidewait phase cancel m build --reason WHY
`, o.Mission(m))
}

// A command is pasted: where it has no room behind what it does it gets a line of its
// own, and is not broken.
func TestCommandsAreNotBroken(t *testing.T) {
	o := render.Options{Now: now, Width: 50}
	require.Contains(t, o.Phase("m", waitingMission().PhaseList[1]), `
  you can free or add a node that has room:
            tidewait node list
          look now: tidewait phase nudge m build
          give up:
            tidewait phase cancel m build --reason WHY
`)
}

func TestWaitWithColours(t *testing.T) {
	o := render.Options{Now: now, Width: 120, Colour: true}
	p := api.Phase{Name: "build", Ordinal: 3, Status: "pending", Wait: &api.Wait{
		Kind: "hold", Code: "awaiting_release", Reason: "the phase is held", Since: at("13:00:00"),
	}}
	require.Equal(t, "\x1b[1mphase 3 \"build\" of mission m\x1b[0m   \x1b[33mpending\x1b[0m · \x1b[33mwaiting for release\x1b[0m   7 s, no bound\n  \x1b[2mwhy     \x1b[0mawaiting_release: the phase is held\n  \x1b[2msince   \x1b[0m13:00:00Z (7 s ago)\n", o.Phase("m", p))
}

func TestPhases(t *testing.T) {
	for _, test := range []struct {
		name  string
		phase api.Phase
		want  string
	}{
		{"not reached", api.Phase{Name: "p", Ordinal: 2, Status: "pending", Attempt: 1}, "phase 2 \"p\" of mission m   pending\n"},
		{
			"running", api.Phase{
				Name: "p", Ordinal: 2, Status: "running", Step: "inject", Node: "node-a", StartedAt: ptr(at("13:00:00")),
				Runs: []api.Run{{ID: "r-2", Attempt: 1, Node: "node-a", Status: "starting", Step: "inject", StartedAt: at("13:00:00")}},
			}, `phase 2 "p" of mission m   running · inject   7 s (since 13:00:00Z)   on node-a
  run     r-2, attempt 1 on node-a: starting (inject); 7 s (since 13:00:00Z)
`,
		},
		{
			"failed", api.Phase{
				Name: "p", Ordinal: 2, Status: "failed", Node: "node-a", FailureCode: "command_failed", Failure: "the command ended with exit 3",
				StartedAt: ptr(at("12:00:00")), EndedAt: ptr(at("12:00:40")),
				Runs: []api.Run{{
					ID: "r-2", Attempt: 1, Node: "node-a", Status: "failed", Step: "destroy", ExitCode: ptr(3),
					Accel: "none", Kernel: "6.12.0", Isolation: "namespaces",
					FailureCode: "command_failed", Failure: "the command ended with exit 3",
					StartedAt: at("12:00:00"), EndedAt: ptr(at("12:00:40")),
				}},
			}, `phase 2 "p" of mission m   failed   40 s (12:00:00Z to 12:00:40Z)   on node-a
  failed  command_failed: the command ended with exit 3
  run     r-2, attempt 1 on node-a: failed; exit 3; none, kernel 6.12.0; 40 s (12:00:00Z to 12:00:40Z)
`,
		},
		{
			"wait ran out", api.Phase{
				Name: "p", Ordinal: 1, Status: "failed", FailureCode: "wait_exceeded", Failure: "waited 2 h; last: capacity_cpu",
				EndedAt: ptr(at("13:00:00")),
				Waits: []api.PastWait{{
					Kind: "capacity", Code: "capacity_cpu", Reason: "every CPU is taken",
					Since: at("11:00:00"), Ended: at("13:00:00"), EndedBy: "expired",
				}},
			}, `phase 1 "p" of mission m   failed
  failed  wait_exceeded: waited 2 h; last: capacity_cpu
  waited  2 h 0 min (11:00:00Z to 13:00:00Z) for capacity, then expired; last reason capacity_cpu: every CPU is taken
`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, plainText.Phase("m", test.phase))
		})
	}
}

func TestMissions(t *testing.T) {
	list := []api.Mission{
		{Name: "m", Status: "running", Launch: 2, Backend: "microvm", Phases: 3, PhasesDone: 1, Current: "build", Wait: ptr(fullWait()), StartedAt: ptr(at("12:10:00"))},
		{Name: "other", Status: "running", Launch: 1, Backend: "process", Phases: 1, Current: "only", StartedAt: ptr(at("13:00:00"))},
		{Name: "big", Status: "draft", Backend: "microvm", Phases: 1, FailureCode: "exceeds_every_node", Failure: "needs 64 CPU, the largest node has 8"},
		{Name: "old", Status: "succeeded", Launch: 1, Backend: "process", Phases: 1, PhasesDone: 1, StartedAt: ptr(at("09:00:00").AddDate(0, 0, -1))},
	}
	require.Equal(t, `MISSION  STATUS     LAUNCH  BACKEND  PHASES  STARTED                                NOW
m        running    2       microvm  1/3     12:10:00Z (50 min ago)                 "build" waiting for capacity, 41 min of 120 (fails 14:19:05Z): capacity_memory: 2 CPU and 2208 MiB on backend microvm; the nearest fit is short by 512 MiB of memory on node-b
other    running    1       process  0/1     13:00:00Z (7 s ago)                    "only"
big      draft      0       microvm  0/1     -                                      exceeds_every_node: needs 64 CPU, the largest node has 8
old      succeeded  1       process  1/1     2026-11-29 09:00:00Z (28 h 0 min ago)  -
`, plainText.Missions(list))
	require.Equal(t, "no missions\n", plainText.Missions(nil))
}

func TestWaits(t *testing.T) {
	other := api.Wait{
		Kind: "gateway", Code: "gateway_unreachable", Reason: "gateway gw-1 does not answer", Mission: "other", Phase: "p",
		WorkflowID: "phase.other.p", Since: at("12:59:00"),
	}
	list := []api.Wait{fullWait(), other}
	require.Equal(t, `WHO      KIND      CODE                 SINCE      WAITED                           NEXT LOOK        PLACE               REASON
m/build  capacity  capacity_memory      12:19:05Z  41 min of 120 (fails 14:19:05Z)  in 4 s           2, about 14:31:00Z  2 CPU and 2208 MiB on backend microvm; the nearest fit is short by 512 MiB of memory on node-b
other/p  gateway   gateway_unreachable  12:59:00Z  67 s, no bound                   when it answers  -                   gateway gw-1 does not answer
`, plainText.Waits(list))
	at200 := render.Options{Now: now, Width: 200}
	require.Equal(t, `WHO      KIND      CODE                 SINCE      WAITED                           NEXT LOOK           PLACE               REASON
m/build  capacity  capacity_memory      12:19:05Z  41 min of 120 (fails 14:19:05Z)  13:00:11Z (in 4 s)  2, about 14:31:00Z  2 CPU and 2208 MiB on backend microvm; the nearest fit is short by 512 MiB …
other/p  gateway   gateway_unreachable  12:59:00Z  67 s, no bound                   when it answers     -                   gateway gw-1 does not answer
… cut: see all of it with `+"`mission show`, `app status` or `-o json`"+`
`, at200.Waits(list))
	at140 := render.Options{Now: now, Width: 140}
	require.Equal(t, `WHO      KIND      CODE                 SINCE      WAITED                           PLACE               REASON
m/build  capacity  capacity_memory      12:19:05Z  41 min of 120 (fails 14:19:05Z)  2, about 14:31:00Z  2 CPU and 2208 MiB on backend micro…
other/p  gateway   gateway_unreachable  12:59:00Z  67 s, no bound                   -                   gateway gw-1 does not answer
… cut: see all of it with `+"`mission show`, `app status` or `-o json`"+`
`, at140.Waits(list))
	at80 := render.Options{Now: now, Width: 80}
	require.Equal(t, `WHO      CODE                 WAITED         REASON
m/build  capacity_memory      41 min of 120  2 CPU and 2208 MiB on backend micr…
other/p  gateway_unreachable  67 s           gateway gw-1 does not answer
… cut: see all of it with `+"`mission show`, `app status` or `-o json`"+`
`, at80.Waits(list))
	long := fullWait()
	long.Mission, long.Phase = "survey", "extremes"
	require.Equal(t, `WHO              CODE             WAITED           REASON
survey/extremes  capacity_memory  14 s of 120 min  2 CPU and 2208 MiB on backen…
`, strings.Join(strings.SplitAfter(render.Options{Now: long.Since.Add(14 * time.Second), Width: 80}.Waits([]api.Wait{long}), "\n")[:2], ""))
	other.Mission = "a-mission-whose-name-is-rather-long"
	at40 := render.Options{Now: now, Width: 44}
	require.Equal(t, `WHO               CODE                 REASON
m/build           capacity_memory      2 CPU and 2208 MiB …
a-mission-whose…  gateway_unreachable  gateway gw-1 does n…
`, strings.Join(strings.SplitAfter(at40.Waits([]api.Wait{fullWait(), other}), "\n")[:3], ""), "nothing narrower is worth reading")
	require.Equal(t, "nothing waits\n", plainText.Waits(nil))
}

func TestWaitChanges(t *testing.T) {
	first, second, third := fullWait(), fullWait(), fullWait()
	second.Code, second.Reason = "capacity_cpu", "every CPU is taken"
	third.Code, third.Reason, third.Position, third.Ahead = second.Code, second.Reason, 1, nil
	require.Equal(t, []string{
		"13:00:07Z  m/build is waiting for capacity, 41 min of 120 (fails 14:19:05Z): capacity_memory: 2 CPU and 2208 MiB on backend microvm; the nearest fit is short by 512 MiB of memory on node-b",
	}, plainText.WaitChanges(nil, []api.Wait{first}))
	require.Equal(t, []string{
		"13:00:07Z  m/build is still waiting for capacity, 41 min of 120 (fails 14:19:05Z), now: capacity_cpu: every CPU is taken",
	}, plainText.WaitChanges([]api.Wait{first}, []api.Wait{second}))
	require.Equal(t, []string{
		"13:00:07Z  m/build is still waiting for capacity, now 1st in line for microvm",
	}, plainText.WaitChanges([]api.Wait{second}, []api.Wait{third}))
	require.Equal(t, []string{
		"13:00:07Z  m/build waits no longer, after 41 min",
	}, plainText.WaitChanges([]api.Wait{third}, nil))
	require.Empty(t, plainText.WaitChanges([]api.Wait{third}, []api.Wait{third}))
}

func fleet() api.NodeList {
	return api.NodeList{Now: now, Nodes: []api.Node{
		{
			ID: "node-a", State: "draining", StateReason: "kernel upgrade", StateActor: "ann@desk", StateSince: at("12:30:00"),
			Deadline: ptr(at("14:00:00")), Arch: "amd64", Labels: map[string]string{"zone": "eu", "disk": "ssd"},
			Total:    capacity.Resources{CPUMilli: 8000, MemoryMiB: 16384, DiskMiB: 102400, Slots: 16},
			Reserved: capacity.Resources{CPUMilli: 2500, MemoryMiB: 4096, DiskMiB: 2048, Slots: 2},
			Starting: 1, StartLimit: 2,
			Backends: map[string]api.Backend{
				"process": {OK: false, Why: "user namespaces are off"},
				"microvm": {OK: true, Accel: "tcg", Kernel: "6.1.0", Enforced: true, Overhead: capacity.Resources{MemoryMiB: 160}, BootMs: 1950},
			},
			Version: "v1", Heartbeat: at("13:00:05"), Registered: at("09:00:00"),
		},
		{ID: "node-b", State: "down", StateSince: at("12:57:00"), Arch: "arm64", Heartbeat: at("12:55:00"), Registered: at("09:00:00")},
	}}
}

func TestNodes(t *testing.T) {
	require.Equal(t, `NODE    STATE     ARCH   CPU    MEMORY          DISK             SLOTS  SEEN       BACKENDS
node-a  draining  amd64  2.5/8  4096/16384 MiB  2048/102400 MiB  2/16   2 s ago    microvm (tcg), process (unusable)
node-b  down      arm64  0/0    0/0 MiB         0/0 MiB          0/0    5 min ago  none
`, plainText.Nodes(fleet()))
	require.Equal(t, "no nodes are registered\n", plainText.Nodes(api.NodeList{}))
}

func TestNodeShowsWhatRunsAndWhatWaitsForIt(t *testing.T) {
	here := fullWait()
	here.BestNode = "node-a"
	detail := api.NodeDetail{Node: fleet().Nodes[0], Runs: []api.NodeRun{{
		ID: "r-9", Mission: "m-71c0", Phase: "survey", Status: "running", Step: "run",
		Reserved: capacity.Resources{CPUMilli: 2500, MemoryMiB: 4096, Slots: 1}, Since: at("12:40:00"), EndsBy: at("13:40:00"),
	}}, Acts: []api.Act{
		{Verb: "cordon", Via: api.ViaNATS, At: at("12:20:00")},
		{Verb: "drain", Actor: "ann@desk", Note: "kernel upgrade", Via: api.ViaNATS, At: at("12:30:00")},
	}}
	require.Equal(t, `node node-a   draining   since 12:30:00Z (30 min ago)
  why     kernel upgrade (by ann@desk)
  stops   14:00:00Z (in 59 min): runs that are still there then are ended, and their phases go back to the queue
  arch    amd64
  labels  disk=ssd, zone=eu
  cpu     2.5 of 8 reserved, 5.5 free
  memory  4096 of 16384 MiB reserved, 12288 free
  disk    2048 of 102400 MiB reserved, 100352 free
  slots   2 of 16 reserved, 14 free
  starts  1 now, at most 2 at once
  offers  microvm: tcg, kernel 6.1.0, boots in 1950 ms, overhead 160 MiB memory
  offers  process: unusable: user namespaces are off
  seen    13:00:05Z (2 s ago)
  joined  09:00:00Z (4 h 0 min ago)
  version v1
  cordon  by somebody through Tidewait's NATS API, 12:20:00Z (40 min ago)
  drain   by ann@desk, 12:30:00Z (30 min ago): kernel upgrade

RUN  WHO            STATUS   STEP  SINCE                   ENDS BY                HOLDS
r-9  m-71c0/survey  running  run   12:40:00Z (20 min ago)  13:40:00Z (in 39 min)  2.5 CPU, 4096 MiB memory, 1 slot

WHO      KIND      CODE             SINCE      WAITED                           NEXT LOOK  PLACE               REASON
m/build  capacity  capacity_memory  12:19:05Z  41 min of 120 (fails 14:19:05Z)  in 4 s     2, about 14:31:00Z  2 CPU and 2208 MiB on backend microvm; the nearest fit is short by 512 MiB of memory on node-b
`, plainText.Node(detail, []api.Wait{here}))
}

func TestResults(t *testing.T) {
	r := api.Results{Branch: "tidewait/m/2", Base: "1a2b3c4d5e6f7a8b9c0d1a2b3c4d5e6f7a8b9c0d", Commits: []api.Commit{{
		Commit: "ffeeddccbbaa99887766554433221100ffeeddcc", Phase: "survey", Run: "r-1", Subject: "survey: make survey",
		When: at("12:18:30"), Files: 3, Insertions: 40, Deletions: 2,
	}}}
	require.Equal(t, `branch tidewait/m/2 from 1a2b3c4d5e6f
COMMIT        PHASE   RUN  FILES  LINES   WHEN                    SUBJECT
ffeeddccbbaa  survey  r-1  3      +40 -2  12:18:30Z (41 min ago)  survey: make survey
`, plainText.Results(r))
	require.Equal(t, "branch b from abc\nno results yet\n", plainText.Results(api.Results{Branch: "b", Base: "abc"}))
}
