package gateway

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/natsrpc"
	"tidewait/internal/natstest"
	"tidewait/internal/provision"
	"tidewait/internal/workspace"
	"tidewait/workflows"
)

// spoil makes one object of mission port unreadable, and nothing else.
func spoil(t testing.TB, disk, name string) {
	t.Helper()
	repo := filepath.Join(disk, "missions", "port.git")
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"--git-dir=" + repo}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	id := git("rev-parse", name)
	packs, err := filepath.Glob(filepath.Join(repo, "objects", "pack", "*.pack"))
	require.NoError(t, err)
	for _, pack := range packs {
		for line := range strings.Lines(git("verify-pack", "-v", pack)) {
			fields := strings.Fields(line)
			if fields[0] != id {
				continue
			}
			offset, err := strconv.ParseInt(fields[4], 10, 64)
			require.NoError(t, err)
			require.NoError(t, os.Chmod(pack, 0o600))
			file, err := os.OpenFile(pack, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = file.WriteAt([]byte("XX"), offset+3)
			require.NoError(t, err)
			require.NoError(t, file.Close())
			return
		}
	}
	t.Fatalf("no pack has %s", id)
}

func setAside(t testing.TB, disk string) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(disk, "damaged"))
	require.NoError(t, err)
	return len(entries)
}

// TestAFailureOfOthersReplacesNothing has a repository that a deep look would find
// damaged, and failures that are not git's.
func TestAFailureOfOthersReplacesNothing(t *testing.T) {
	s := newSite(t, config.Fleet{})
	g, disk := s.gateway(t)
	from, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	in := s.commits(t, "r1-1", from, 100)
	spoil(t, disk, from.Commit+":README")

	alone := natstest.Start(t, &server.Options{})
	g.NATS = natstest.Connect(t, alone.ClientURL())
	_, err = g.Commit(t.Context(), in)
	require.ErrorContains(t, err, "ask whether run r1-1 may commit")
	require.Zero(t, setAside(t, disk))

	up := make(chan struct{})
	engine := natsrpc.Service{Name: "engines", Version: "1.0.0", Log: slog.New(slog.DiscardHandler), Handlers: map[string]natsrpc.Handler{
		api.SubjectMayCommit: natsrpc.With(func(context.Context, api.CommitRequest) (any, error) {
			return nil, &api.Error{Code: api.CodeStale, Message: "its phase was placed again"}
		}),
	}, Code: func(error) string { return api.CodeStale }}
	go func() { _ = engine.Serve(t.Context(), g.NATS, func() { close(up) }) }()
	<-up
	_, err = g.Commit(t.Context(), in)
	var stale *Stale
	require.ErrorAs(t, err, &stale)
	require.Zero(t, setAside(t, disk))
}

// TestWhatIsNotKeptIsNotSetAside damages a repository with a commit for which the
// bucket had no room.
func TestWhatIsNotKeptIsNotSetAside(t *testing.T) {
	s := newSite(t, config.Fleet{BundleBytes: 1 << 20})
	g, disk := s.gateway(t)
	from, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	var full *Full
	_, err = g.Commit(t.Context(), s.commits(t, "r1-1", from, 2<<20))
	require.ErrorAs(t, err, &full)
	head := chainOf(t, g, 1).Head()
	require.NotEqual(t, from.Commit, head)

	spoil(t, disk, from.Commit+":README")
	_, err = g.archive(t.Context(), api.ArchiveRequest{Mission: "port", Launch: 1})
	require.ErrorAs(t, err, &full)
	require.Zero(t, setAside(t, disk))
	require.Equal(t, head, chainOf(t, g, 1).Head())

	require.NoError(t, provision.Streams(t.Context(), s.js, config.Fleet{ObjectTTL: time.Hour, LogTTL: time.Hour, LogBytes: 1 << 20}))
	archived, err := g.archive(t.Context(), api.ArchiveRequest{Mission: "port", Launch: 1})
	require.NoError(t, err)
	require.Equal(t, head, archived.(api.ArchiveReply).Commit)
	require.Equal(t, 1, setAside(t, disk))

	// Damage that restoring did not mend is not set aside again and again.
	spoil(t, disk, from.Commit+":README")
	damage, err := g.Checkouts.Damage(t.Context(), "port", true)
	require.NoError(t, err)
	g.healing.stay("port", damage)
	_, err = g.archive(t.Context(), api.ArchiveRequest{Mission: "port", Launch: 1})
	require.Error(t, err)
	require.Equal(t, 1, setAside(t, disk))
}

// TestWhatCannotBeReadGoes spoils the commit that was not kept itself, and keeps what
// can still be read beside it.
func TestWhatCannotBeReadGoes(t *testing.T) {
	s := newSite(t, config.Fleet{BundleBytes: 1 << 20})
	g, disk := s.gateway(t)
	from, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	_, err = g.commit(t.Context(), s.commits(t, "r1-1", from, 100)) // and was stopped before it kept it
	require.NoError(t, err)
	head := chainOf(t, g, 1).Head()
	partial := s.commits(t, "r2-1", workflows.Checkout{Commit: head, Tree: from.Tree}, 100)
	partial.Partial = "a person stopped it"
	lost, err := g.commit(t.Context(), partial)
	require.NoError(t, err)

	spoil(t, disk, lost.Commit+":r2-1.txt")
	better, err := g.replaceDamaged(t.Context(), "port", 1, true)
	require.NoError(t, err)
	require.True(t, better)
	require.Equal(t, 1, setAside(t, disk))
	require.Equal(t, workspace.Chain{Base: from.Commit, Commits: []string{head}, Partial: map[string]string{}}, chainOf(t, g, 1))
}
