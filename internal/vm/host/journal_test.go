package host

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/vm"
)

func TestJournalsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		``:                         "unexpected end of JSON input",
		`{`:                        "unexpected end of JSON input",
		`{}`:                       "its run id has 0 bytes",
		`{"runID":"r","pid":1}`:    "1 is no process of a machine",
		`{"runID":"r","pid":-123}`: "-123 is no process of a machine",
		`{"runID":"r","pid":4194304,"keeper":{"pid":0}}`:                        "0 is no process of a keeper",
		`{"runID":"r","keeper":{"pid":-1}}`:                                     "-1 is no process of a keeper",
		`{"runID":"r","cgroups":["/sys/fs/cgroup/memory"]}`:                     `"/sys/fs/cgroup/memory" is no cgroup of a machine`,
		`{"runID":"r","cgroups":["/sys/fs/cgroup/../../../etc/tidewait/../x"]}`: `"/sys/fs/cgroup/../../../etc/tidewait/../x" is no cgroup of a machine`,
		`{"runID":"r","cgroups":["/home/tidewait/x"]}`:                          `"/home/tidewait/x" is no cgroup of a machine`,
	} {
		_, err := decode([]byte(text))
		require.EqualError(t, err, want, text)
	}
}

// FuzzJournal: whatever a journal says, nothing is done that could hit others.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"runID":"r1-1","pid":77,"startTicks":5,"bootID":"b","cgroups":["/sys/fs/cgroup/memory/tidewait/r1-1.0"],"keeper":{"pid":76,"startTicks":4},"kept":{"accel":"none"}}`))
	f.Add([]byte(`{"runID":"r","pid":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		run, err := decode(b)
		if err != nil {
			return
		}
		require.True(t, run.PID == 0 || run.PID > 1)
		require.True(t, run.Keeper == nil || run.Keeper.PID > 1)
		for _, dir := range run.Cgroups {
			require.True(t, strings.HasPrefix(dir, "/sys/fs/cgroup/"))
			require.Equal(t, "tidewait", filepath.Base(filepath.Dir(dir)))
			require.NotContains(t, strings.Split(dir, "/"), "..")
		}
	})
}

// TestJournalsAreReadAsWritten: what is written is read, whatever it is.
func TestJournalsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &Run{
			ID: rapid.StringMatching(`[a-z0-9/ -]{1,40}`).Draw(t, "id"), PID: rapid.IntRange(2, 1<<22).Draw(t, "pid"),
			StartTicks: rapid.Uint64().Draw(t, "ticks"), BootID: rapid.StringMatching(`[0-9a-f-]{0,36}`).Draw(t, "boot"),
		}
		if rapid.Bool().Draw(t, "kept") {
			want.Keeper = &proc{PID: rapid.IntRange(2, 1<<22).Draw(t, "keeper"), StartTicks: rapid.Uint64().Draw(t, "keeper ticks")}
			want.Kept = &vm.Info{Accel: "tcg", Kernel: "6.1", Start: vm.Start{Kind: vm.StartCold}}
			want.Cgroups = []string{"/sys/fs/cgroup/cpu/tidewait/" + rapid.StringMatching(`[a-z0-9.]{1,20}x`).Draw(t, "cgroup")}
		}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(b)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}
