package negctl

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		ids  []string
		want []string
	}{
		{[]string{"2"}, []string{"2-size", "2-down", "2-retired"}},
		{[]string{"9", "1-empty"}, []string{"1-empty", "9"}},
		{[]string{"3-held", "3-held"}, []string{"3-held"}},
	} {
		got, err := Select(c.ids)
		require.NoError(t, err)
		require.Equal(t, c.want, idsOf(got))
	}
	all, err := Select(nil)
	require.NoError(t, err)
	require.Equal(t, []string{
		"1-empty", "1-backend", "2-size", "2-down", "2-retired", "8", "3-full", "3-held", "3-busy", "3-microvm",
		"4", "5-before", "5-late", "5-event", "5-race", "6", "7", "9",
	}, idsOf(all))
	for _, id := range []string{"10", "2-", "", "3-ful"} {
		_, err := Select([]string{id})
		require.EqualError(t, err, `there is no control "`+id+"\"; list them with `tidewait negctl --list`")
	}
}

func idsOf(controls []Control) []string {
	var ids []string
	for _, c := range controls {
		ids = append(ids, c.ID)
	}
	return ids
}

// TestATrialEndsAtItsFirstWrongFact runs controls that are made up.
func TestATrialEndsAtItsFirstWrongFact(t *testing.T) {
	s := &stack{}
	went := false
	r := s.try(t.Context(), Control{ID: "x", run: func(t *trial) {
		equal(t, "this", 1, 1)
		t.later(func() { went = true })
		equal(t, "code", "a", "b")
		equal(t, "that", 2, 2)
	}})
	require.Equal(t, []any{false, "code is b, must be a", true}, []any{r.OK, r.Problem, went})
	require.Equal(t, []string{"this 1"}, r.Observed)
	require.Equal(t, []string{"x"}, Failed([]Result{r, {OK: true}}))

	r = s.try(t.Context(), Control{ID: "y", run: func(*trial) { panic(impossible{"no machines"}) }})
	require.Equal(t, []any{true, "", "no machines"}, []any{r.OK, r.Problem, r.NotRun})
}

// source is the root of the source tree.
func source(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	return root
}

// TestEditsFit finds each piece that a sabotage takes out in the source, once.
func TestEditsFit(t *testing.T) {
	ids := idsOf(Controls())
	for _, s := range Sabotages() {
		require.NotEmpty(t, s.Guards)
		for _, id := range s.Guards {
			require.True(t, slices.Contains(ids, id), id)
		}
		require.Equal(t, s.edit == nil, s.sql != "", s.Name)
		if s.edit == nil {
			continue
		}
		require.NoError(t, s.edit.check(source(t)))
		_, err := s.edit.overlay(source(t), t.TempDir())
		require.NoError(t, err, s.Name)
	}
	stale := edit{file: "internal/capacity/pass.go", old: "this is not in it"}
	_, err := stale.overlay(source(t), t.TempDir())
	require.EqualError(t, err, "internal/capacity/pass.go has the piece that is to be taken out 0 times, not once")
	require.ErrorContains(t, stale.check(t.TempDir()), "is not Tidewait's source tree")
}

// TestVariantsWorkNowhereElse starts a variant outside of a run of sabotages.
func TestVariantsWorkNowhereElse(t *testing.T) {
	i := slices.IndexFunc(Sabotages(), Sabotage.Built)
	dir := t.TempDir()
	require.NoError(t, Sabotages()[i].BuildVariant(t.Context(), source(t), dir, "/nowhere/tidewait-guest"))
	start := func(data string) (string, int) {
		cmd := exec.Command(filepath.Join(dir, "tidewait-worker"), "--version")
		cmd.Env = []string{"TIDEWAIT_DATA_DIR=" + data}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			require.NoError(t, err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := start(t.TempDir())
	require.Equal(t, 2, code)
	require.Contains(t, out, "this is a variant without one of its safeties")
	marked := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(marked, variantMark), nil, 0o600))
	out, code = start(marked)
	require.Zero(t, code, out)
	require.Contains(t, strings.TrimSpace(out), "sabotaged.")
}
