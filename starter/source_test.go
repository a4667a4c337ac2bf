package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/gateway"
	"tidewait/internal/objects"
	"tidewait/internal/provision"
	"tidewait/internal/tartest"
	"tidewait/internal/workspace"
	"tidewait/workflows"
)

// keeps makes a launch of mission m on a gateway that is gone then, with one commit.
func (b *bus) keeps(gatewayID string) (commit string) {
	t, js := b.t, b.jetstream()
	fleet := config.Fleet{ObjectTTL: time.Hour, LogTTL: time.Hour, LogBytes: 1 << 20}
	require.NoError(t, provision.Streams(t.Context(), js, fleet))
	require.NoError(t, provision.NodeBucket(t.Context(), js, "n1", fleet))
	b.answer(api.SubjectMayCommit, always(struct{}{}))
	checkouts, err := workspace.New(t.TempDir(), workspace.Options{})
	require.NoError(t, err)
	g := &gateway.Gateway{ID: gatewayID, Checkouts: checkouts, JS: js, NATS: b.conn, Log: slog.New(slog.DiscardHandler)}
	put := func(bucket, name string, content []byte) workflows.Object {
		store, err := js.ObjectStore(t.Context(), bucket)
		require.NoError(t, err)
		_, err = objects.Put(t.Context(), store, name, bytes.NewReader(content))
		require.NoError(t, err)
		sum := sha256.Sum256(content)
		return workflows.Object{Bucket: bucket, Name: name, SHA256: hex.EncodeToString(sum[:])}
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README"), []byte("read me\n"), 0o600))
	var upload bytes.Buffer
	bundle, err := workspace.BundleDir(t.Context(), dir, &upload)
	require.NoError(t, err)
	from, err := g.Open(t.Context(), workflows.OpenCheckoutInput{
		Mission: "m", Launch: 1, Head: bundle.Head, Bundle: put(api.BucketWorkspaces, "upload", upload.Bytes()),
	})
	require.NoError(t, err)
	c, err := g.Commit(t.Context(), workflows.CommitResultsInput{
		Mission: "m", Launch: 1, Phase: "work", RunID: "r1-1", Node: "n1", Parent: from.Commit, TreeIn: from.Tree,
		Results: put(api.BucketResults("n1"), "r1-1", tartest.Of(tartest.File("made.txt", "made\n"))),
	})
	require.NoError(t, err)
	return c.Commit
}

// TestResultsComeFromWhatIsKept while their gateway is away, and it is said whose
// answer that is.
func TestResultsComeFromWhatIsKept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	b := newBus(t)
	b.answer(api.SubjectMissionShow, always(api.MissionDetail{Mission: api.Mission{Name: "m", Launch: 1, Status: "succeeded"}, Gateway: "gw-1"}))
	commit := b.keeps("gw-1")
	ask := func(args ...string) string {
		t.Helper()
		got := b.run(append([]string{"mission", "results", "m"}, args...)...)
		require.Zero(t, got.code, got.errors)
		require.Regexp(t, `^tidewait: gateway gw-1 does not answer; this is from what it has kept in the object store, last at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n$`, got.errors)
		return got.out
	}
	require.Contains(t, ask(), commit[:12]+"  work   r1-1  1      +1 -0")
	require.Contains(t, ask("--stat"), "+1 -0  made.txt")
	require.Contains(t, ask("--diff"), "+++ b/made.txt\n@@ -0,0 +1 @@\n+made\n")

	tree := filepath.Join(t.TempDir(), "tree")
	require.Equal(t, "2 files of commit "+commit[:12]+" are in "+tree+"\n", ask("--export", tree))
	made, err := os.ReadFile(filepath.Join(tree, "made.txt"))
	require.NoError(t, err)
	require.Equal(t, "made\n", string(made))

	home := t.TempDir()
	require.NoError(t, exec.CommandContext(t.Context(), "git", "init", "--quiet", home).Run())
	require.Contains(t, ask("--into", home), "branch tidewait/m/1 is now in "+home+" at "+commit)
	head, err := exec.CommandContext(t.Context(), "git", "-C", home, "rev-parse", "tidewait/m/1").Output()
	require.NoError(t, err)
	require.Equal(t, commit, strings.TrimSpace(string(head)))

	left, err := filepath.Glob(filepath.Join(os.TempDir(), "tidewait-kept-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	// What is kept and cannot be read is said too.
	store, err := b.jetstream().ObjectStore(t.Context(), api.BucketBundles)
	require.NoError(t, err)
	require.NoError(t, store.Delete(t.Context(), "bundle/m/1/"+commit))
	got := b.run("mission", "results", "m")
	require.Equal(t, outcome{5, "", "tidewait: no gateway gw-1 answers on " + b.url + "; it holds the mission's results, so start that gateway again; " +
		"and what it has kept in the object store cannot be read: the bundles of launch 1 of mission m are not all there any more; launch the mission again\n"}, got)
}
