package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/internal/workspace"
)

func TestALaunchIsForgotten(t *testing.T) {
	root := t.TempDir()
	g, err := workspace.New(root, workspace.Options{})
	require.NoError(t, err)
	source := repository(t, small)
	first := openLaunch(t, g, source, 1)
	second := openLaunch(t, g, source, 2)
	survey(t, g, first.Head, "r1-1", "one\n")
	partial := request(first.Head, "r2-1", tarOf(file("half.txt", "half\n")))
	partial.Launch, partial.Partial = 2, "a person stopped it"
	_, err = g.CommitPartial(t.Context(), partial)
	require.NoError(t, err)
	launches, err := g.Launches(t.Context())
	require.NoError(t, err)
	require.Equal(t, []workspace.LaunchOf{{Mission: "port", Launch: 1}, {Mission: "port", Launch: 2}}, launches)

	require.NoError(t, g.Forget(t.Context(), "port", 1))
	require.NoError(t, g.Forget(t.Context(), "port", 1), "it may be said again")
	_, err = g.Chain(t.Context(), "port", 1)
	requireRefused(t, err, workspace.Missing, "this gateway has no checkout of launch 1 of mission port")
	chain, err := g.Chain(t.Context(), "port", 2)
	require.NoError(t, err)
	require.Equal(t, second.Head, chain.Head())
	require.Len(t, chain.Partial, 1)

	require.NoError(t, g.Forget(t.Context(), "port", 2))
	require.NoDirExists(t, filepath.Join(root, "missions", "port.git"))
	require.NoError(t, g.Forget(t.Context(), "port", 3))
	left, err := os.ReadDir(filepath.Join(root, "scratch"))
	require.NoError(t, err)
	require.Empty(t, left)
	launches, err = g.Launches(t.Context())
	require.NoError(t, err)
	require.Empty(t, launches)
}

func TestWhatWasSetAsideIsForgotten(t *testing.T) {
	g, _ := opened(t, small)
	aside, err := g.SetAside("port")
	require.NoError(t, err)
	require.NoError(t, g.ForgetDamaged(time.Hour))
	require.DirExists(t, aside)
	require.NoError(t, g.ForgetDamaged(-time.Hour))
	require.NoDirExists(t, strings.TrimSuffix(aside, "/port.git"))
}
