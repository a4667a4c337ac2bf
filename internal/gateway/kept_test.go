package gateway

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/workspace"
)

// TestWhatIsKeptAnswersWithoutTheGateway as the gateway would.
func TestWhatIsKeptAnswersWithoutTheGateway(t *testing.T) {
	s := newSite(t, config.Fleet{})
	g, _ := s.gateway(t)
	store, err := s.js.ObjectStore(t.Context(), api.BucketBundles)
	require.NoError(t, err)
	none, err := OpenKept(t.Context(), s.js, store, t.TempDir(), "port", 1)
	require.NoError(t, err)
	require.Nil(t, none)

	began := time.Now()
	from, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	one, err := g.Commit(t.Context(), s.commits(t, "r1-1", from, 5))
	require.NoError(t, err)
	partial := s.commits(t, "r2-1", one, 5)
	partial.Partial, partial.Last = "a person stopped it", true
	half, err := g.Commit(t.Context(), partial)
	require.NoError(t, err)

	k, err := OpenKept(t.Context(), s.js, store, t.TempDir(), "port", 1)
	require.NoError(t, err)
	require.Equal(t, "gw", k.Gateway)
	require.WithinRange(t, k.At, began.Add(-time.Second), time.Now().Add(time.Second))

	want, err := g.results(t.Context(), api.ResultsRequest{Mission: "port", Launch: 1})
	require.NoError(t, err)
	results, err := k.Results(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, results)
	require.Equal(t, one.Commit, results.Commits[0].Commit)
	require.Equal(t, half.Commit, results.Partial[0].Commit)

	d, err := k.Diff(t.Context(), "work", false)
	require.NoError(t, err)
	require.Contains(t, d.Text, "+++ b/r1-1.txt\n@@ -0,0 +1 @@\n+r1-1\n")
	d, err = k.Diff(t.Context(), "work", true)
	require.NoError(t, err)
	require.Equal(t, []api.FileStat{{Path: "r1-1.txt", Insertions: 1}}, d.Files)

	for phase, branch := range map[string]string{"": "tidewait/port/1", "work": "tidewait/port/1-partial/work"} {
		var bundle bytes.Buffer
		named, err := k.Bundle(t.Context(), phase, &bundle)
		require.NoError(t, err)
		require.Equal(t, branch, named)
		require.Contains(t, bundle.String(), " refs/heads/"+branch+"\n")
	}

	var archive bytes.Buffer
	commit, err := k.Archive(t.Context(), "", &archive)
	require.NoError(t, err)
	require.Equal(t, one.Commit, commit)
	var names []string
	for r := tar.NewReader(&archive); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		names = append(names, h.Name)
	}
	require.Equal(t, []string{"README", "r1-1.txt"}, names)
	_, err = k.Archive(t.Context(), "other", &archive)
	var refused *workspace.Refused
	require.ErrorAs(t, err, &refused)

	require.NoError(t, store.Delete(t.Context(), "bundle/port/1/"+from.Commit))
	_, err = OpenKept(t.Context(), s.js, store, t.TempDir(), "port", 1)
	require.ErrorContains(t, err, "the bundles of launch 1 of mission port are not all there any more")
	_, err = store.GetInfo(t.Context(), recordName("port", 1))
	require.NotErrorIs(t, err, jetstream.ErrObjectNotFound, "and nothing was changed")
}
