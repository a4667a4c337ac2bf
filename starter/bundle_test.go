package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/mission"
)

// git runs git in dir, apart from the settings of whoever runs the tests.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=ann", "GIT_AUTHOR_EMAIL=ann@example.org", "GIT_COMMITTER_NAME=ann", "GIT_COMMITTER_EMAIL=ann@example.org")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %q: %s", args, out)
	return strings.TrimSpace(string(out))
}

// repository returns a repository with one commit and that commit.
func repository(t *testing.T) (dir, head string) {
	t.Helper()
	dir = t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("one\n"), 0o600))
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "one")
	return dir, git(t, dir, "rev-parse", "HEAD")
}

func TestWorkspacesAreUploadedOnceByDigest(t *testing.T) {
	ctx := context.Background()
	b := newBus(t)
	store, err := b.jetstream().CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: api.BucketWorkspaces})
	require.NoError(t, err)
	dir, head := repository(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("two\n"), 0o600))

	c, out, errs := captured()
	e := &engine{conn: b.conn, url: b.url}
	s := config.Settings{Fleet: config.Fleet{ObjectTTL: time.Hour}}
	bundle, err := c.sendWorkspace(ctx, e, s, mission.Workspace{Git: dir, Ref: "main"})
	require.NoError(t, err)
	require.Equal(t, head, bundle.Head)
	require.Equal(t, "tidewait: "+dir+" has uncommitted changes in 1 file; they are not part of the mission, which starts from commit "+head+"\n", errs.String())
	require.Empty(t, out.String())

	content, err := store.GetBytes(ctx, bundle.SHA256)
	require.NoError(t, err)
	sum := sha256.Sum256(content)
	require.Equal(t, bundle.SHA256, hex.EncodeToString(sum[:]))
	first, err := store.GetInfo(ctx, bundle.SHA256)
	require.NoError(t, err)

	_, err = c.sendWorkspace(ctx, e, s, mission.Workspace{Git: dir, Ref: "main"})
	require.NoError(t, err)
	second, err := store.GetInfo(ctx, bundle.SHA256)
	require.NoError(t, err)
	require.Equal(t, first.NUID, second.NUID, "what is there is not sent again")

	s.Fleet.ObjectTTL = 0
	_, err = c.sendWorkspace(ctx, e, s, mission.Workspace{Git: dir, Ref: "main"})
	require.NoError(t, err)
	third, err := store.GetInfo(ctx, bundle.SHA256)
	require.NoError(t, err)
	require.NotEqual(t, first.NUID, third.NUID, "what is about to expire is sent again")
}

func TestWorkspacesThatCannotBeSent(t *testing.T) {
	ctx := context.Background()
	b := newBus(t)
	c, _, _ := captured()
	e := &engine{conn: b.conn, url: b.url}
	dir, _ := repository(t)

	_, err := c.sendWorkspace(ctx, e, config.Settings{}, mission.Workspace{Git: dir, Ref: "main"})
	require.Equal(t, 5, exitCode(err))
	require.Equal(t, "tidewait: NATS on "+b.url+" has no object store tidewait-workspaces; create it with `tidewait setup`", message(err))

	_, err = c.sendWorkspace(ctx, e, config.Settings{}, mission.Workspace{Git: dir, Ref: "nope"})
	require.Equal(t, 1, exitCode(err))
	require.Regexp(t, `^tidewait: cannot bundle the workspace: .*nope`, message(err))

	_, err = c.sendWorkspace(ctx, e, config.Settings{}, mission.Workspace{Path: "/nonexistent/files"})
	require.Equal(t, 1, exitCode(err))
	require.Regexp(t, `^tidewait: cannot bundle the workspace: .*/nonexistent/files`, message(err))

	bundle, err := c.sendWorkspace(ctx, e, config.Settings{}, mission.Workspace{Git: "https://example.org/repo.git"})
	require.NoError(t, err)
	require.Empty(t, bundle, "the gateway fetches a remote workspace")
}

func TestResultsComeHome(t *testing.T) {
	ctx := context.Background()
	b := newBus(t)
	remote, base := repository(t)
	home := t.TempDir()
	git(t, home, "clone", "-q", remote, ".")
	git(t, remote, "checkout", "-q", "-b", "tidewait/m/1")
	git(t, remote, "commit", "-q", "--allow-empty", "-m", "survey")
	head := git(t, remote, "rev-parse", "HEAD")
	path := filepath.Join(t.TempDir(), "b.bundle")
	git(t, remote, "bundle", "create", "-q", path, "refs/heads/tidewait/m/1", "^"+base)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	sum := sha256.Sum256(content)

	store, err := b.jetstream().CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: api.BucketWorkspaces})
	require.NoError(t, err)
	_, err = store.PutBytes(ctx, "o", content)
	require.NoError(t, err)
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{Mission: api.Mission{Name: "m", Launch: 1}, Gateway: "gw-1"}))
	b.answer(api.SubjectGateway("gw-1", "bundle"), always(api.BundleReply{
		Bucket: api.BucketWorkspaces, Object: "o", Branch: "tidewait/m/1", SHA256: hex.EncodeToString(sum[:]),
	}))

	require.Equal(t,
		outcome{0, "branch tidewait/m/1 is now in " + home + " at " + head + "; see it with: git -C " + home + " log tidewait/m/1\n", ""},
		b.run("mission", "results", "m", "--into", home))
	require.Equal(t, head, git(t, home, "rev-parse", "refs/heads/tidewait/m/1"))
	require.Equal(t, base, git(t, home, "rev-parse", "HEAD"))
	require.Equal(t,
		outcome{2, "", "tidewait: --into /nonexistent is not a directory; name a git repository\n"},
		b.run("mission", "results", "m", "--into", "/nonexistent"))
}
