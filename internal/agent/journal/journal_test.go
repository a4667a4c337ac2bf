package journal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/vm"
	"tidewait/workflows"
)

func entry(run string) Entry {
	return Entry{Input: workflows.ExecuteRunInput{Machine: vm.Spec{RunID: run}}, Step: "run"}
}

func TestEntriesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		``:   "unexpected end of JSON input",
		`[]`: "json: cannot unmarshal array into Go value of type journal.Entry",
		`{}`: "its run id has 0 bytes",
		`{"input":{"machine":{"runId":"r1-1"}},"step":"dance"}`:                               `"dance" is no step of a run`,
		`{"input":{"machine":{"runId":"r1-1"}},"step":"run","endsAt":-1}`:                     "its turn ended before the host began",
		`{"input":{"machine":{"runId":"r1-1"},"secrets":["TOKEN"]},"step":"run"}`:             "runs with secrets or several machines are in no journal",
		`{"input":{"machine":{"runId":"r1-1"},"agents":[{"name":"author"}]},"step":"create"}`: "runs with secrets or several machines are in no journal",
	} {
		_, err := Decode([]byte(text))
		require.EqualError(t, err, want, text)
	}
}

func TestJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs")
	j, err := Open(dir)
	require.NoError(t, err)
	first, second := entry("r1-1"), entry("r2-1")
	require.NoError(t, j.Write(first))
	first.Step, first.Result = "destroy", &workflows.ExecuteRunResult{Exit: &vm.Exit{Code: 3}}
	require.NoError(t, j.Write(first))
	require.NoError(t, j.Write(second))
	for name, text := range map[string]string{
		"r3-1.json.new": `{`, "r4-1.json": "", "r5-1.json": `{"input":{"machine":{"runId":"r6-1"}},"step":"run"}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}

	runs, unreadable, err := j.Read()
	require.NoError(t, err)
	require.Equal(t, map[string]Entry{"r1-1": first, "r2-1": second}, runs)
	require.Equal(t, int64(2), unreadable, "what was being written was whole before")
	runs, unreadable, err = j.Read()
	require.NoError(t, err)
	require.Len(t, runs, 2)
	require.Zero(t, unreadable)

	require.NoError(t, j.Remove("r1-1"))
	require.NoError(t, j.Remove("r1-1"))
	require.NoError(t, j.Remove("../../etc/passwd"))
	runs, _, err = j.Read()
	require.NoError(t, err)
	require.Equal(t, map[string]Entry{"r2-1": second}, runs)
}

// FuzzDecode: what is read is a run of one machine without secrets, and is read
// again as it was written.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"input":{"mission":"m","machine":{"runId":"r1-1"},"turn":60000000000},"step":"run","bootId":"b","endsAt":5,"info":{"accel":"tcg"},"result":{"exit":{"code":1}}}`))
	f.Add([]byte(`{"input":{"machine":{"runId":"../x"}},"step":"create"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err != nil {
			return
		}
		require.NotEmpty(t, e.Run())
		require.Empty(t, e.Input.Secrets)
		require.Empty(t, e.Input.Agents)
		j := &Journal{"/journal"}
		require.Equal(t, "/journal", filepath.Dir(j.name(e.Run())))
		again, err := json.Marshal(e)
		require.NoError(t, err)
		got, err := Decode(again)
		require.NoError(t, err)
		require.Equal(t, e, got)
	})
}

func TestEntriesAreReadAsWritten(t *testing.T) {
	j, err := Open(t.TempDir())
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		e := entry(rapid.StringMatching(`r[0-9]{1,9}-[0-9]{1,3}`).Draw(t, "run"))
		e.Step = rapid.SampledFrom(steps).Draw(t, "step")
		e.EndsAt = time.Duration(rapid.Int64Min(0).Draw(t, "ends"))
		e.Input.Command.Argv = rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "argv")
		if err := j.Write(e); err != nil {
			t.Fatal(err)
		}
		runs, unreadable, err := j.Read()
		if err != nil || unreadable != 0 {
			t.Fatalf("%d unreadable: %v", unreadable, err)
		}
		require.Equal(t, map[string]Entry{e.Run(): e}, runs)
		require.NoError(t, j.Remove(e.Run()))
	})
}
