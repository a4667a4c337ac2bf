package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/natsrpc"
	"tidewait/internal/natstest"
	"tidewait/internal/objects"
	"tidewait/internal/provision"
	"tidewait/internal/tartest"
	"tidewait/internal/workspace"
	"tidewait/workflows"
)

// site is NATS with what a gateway finds there.
type site struct {
	nc *nats.Conn
	js jetstream.JetStream
}

func newSite(t testing.TB, fleet config.Fleet) *site {
	t.Helper()
	nc := natstest.Connect(t, natstest.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir()}).ClientURL())
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	fleet.ObjectTTL, fleet.LogTTL, fleet.LogBytes = time.Hour, time.Hour, 1<<20
	require.NoError(t, provision.Streams(t.Context(), js, fleet))
	require.NoError(t, provision.NodeBucket(t.Context(), js, "n1", fleet))
	admitAll(t, nc)
	return &site{nc: nc, js: js}
}

// admitAll answers for the engines, to which every run counts here.
func admitAll(t testing.TB, nc *nats.Conn) {
	t.Helper()
	ready := make(chan struct{})
	served := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); require.NoError(t, <-served) })
	go func() {
		served <- natsrpc.Service{
			Name: "engines", Version: "1.0.0", Log: slog.New(slog.DiscardHandler),
			Handlers: map[string]natsrpc.Handler{
				api.SubjectMayCommit: natsrpc.With(func(context.Context, api.CommitRequest) (any, error) { return struct{}{}, nil }),
			},
		}.Serve(ctx, nc, func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-served:
		t.Fatalf("nobody answers whether runs may commit: %v", err)
	}
}

// gateway is gateway gw on a disk of its own.
func (s *site) gateway(t testing.TB) (g *Gateway, disk string) {
	t.Helper()
	disk = t.TempDir()
	return s.gatewayOn(t, disk), disk
}

func (s *site) gatewayOn(t testing.TB, disk string) *Gateway {
	t.Helper()
	checkouts, err := workspace.New(disk, workspace.Options{})
	require.NoError(t, err)
	return &Gateway{ID: "gw", Checkouts: checkouts, JS: s.js, NATS: s.nc, Heartbeat: time.Second, Log: slog.New(slog.DiscardHandler)}
}

func (s *site) put(t testing.TB, bucket, name string, data []byte) workflows.Object {
	t.Helper()
	store, err := s.js.ObjectStore(t.Context(), bucket)
	require.NoError(t, err)
	_, err = objects.Put(t.Context(), store, name, bytes.NewReader(data))
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	return workflows.Object{Bucket: bucket, Name: name, SHA256: hex.EncodeToString(sum[:])}
}

// opens is a launch of mission port from a directory with one file.
func (s *site) opens(t testing.TB, launch int, content string) workflows.OpenCheckoutInput {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README"), []byte(content), 0o600))
	var b bytes.Buffer
	bundle, err := workspace.BundleDir(t.Context(), dir, &b)
	require.NoError(t, err)
	return workflows.OpenCheckoutInput{
		Mission: "port", Launch: launch, Head: bundle.Head, Bundle: s.put(t, api.BucketWorkspaces, bundle.SHA256, b.Bytes()),
	}
}

// commits is what a run of launch 1 brings back: one file.
func (s *site) commits(t testing.TB, run string, from workflows.Checkout, size int) workflows.CommitResultsInput {
	t.Helper()
	content := bytes.Repeat([]byte(run+"\n"), size/(len(run)+1))
	if size > 1<<19 { // what git cannot make smaller
		content = noise(size)
	}
	return workflows.CommitResultsInput{
		Mission: "port", Launch: 1, Phase: "work", RunID: run, Node: "n1", Parent: from.Commit, TreeIn: from.Tree,
		Results: s.put(t, api.BucketResults("n1"), run, tartest.Of(tartest.File(run+".txt", string(content)))),
	}
}

// noise is the same for the same size, and has no pattern.
func noise(size int) []byte {
	var out []byte
	sum := sha256.Sum256([]byte("noise"))
	for len(out) < size {
		out = append(out, sum[:]...)
		sum = sha256.Sum256(sum[:])
	}
	return out[:size]
}

func (s *site) bundles(t testing.TB) []string {
	t.Helper()
	store, err := s.js.ObjectStore(t.Context(), api.BucketBundles)
	require.NoError(t, err)
	list, err := store.List(t.Context(), jetstream.ListObjectsShowDeleted())
	if err != nil {
		require.ErrorIs(t, err, jetstream.ErrNoObjectsFound)
	}
	var names []string
	for _, o := range list {
		names = append(names, o.Name)
	}
	return names
}

func chainOf(t testing.TB, g *Gateway, launch int) workspace.Chain {
	t.Helper()
	c, err := g.Checkouts.Chain(t.Context(), "port", launch)
	require.NoError(t, err)
	return c
}

func TestACommitIsKeptBeforeItIsAnswered(t *testing.T) {
	s := newSite(t, config.Fleet{})
	g, _ := s.gateway(t)
	open := s.opens(t, 1, "read me\n")
	from, err := g.Open(t.Context(), open)
	require.NoError(t, err)
	first := s.commits(t, "r1-1", from, 100)
	one, err := g.Commit(t.Context(), first)
	require.NoError(t, err)
	again, err := g.Commit(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, one, again)
	require.ElementsMatch(t, []string{"launch/port/1", "bundle/port/1/" + from.Commit, "bundle/port/1/" + one.Commit}, s.bundles(t))

	// Another disk: the launch is not opened from its source, which has changed.
	other, _ := s.gateway(t)
	changed := s.opens(t, 1, "something else\n")
	back, err := other.Open(t.Context(), changed)
	require.NoError(t, err)
	require.Equal(t, one, back)
	second := s.commits(t, "r2-1", back, 100)
	second.Last = true
	two, err := other.Commit(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, []string{one.Commit, two.Commit}, chainOf(t, other, 1).Commits)

	// The first one, which is behind, is told the same run again, and a later one.
	late, err := g.Commit(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, two.Commit, late.Commit)
	_, err = g.Commit(t.Context(), s.commits(t, "r3-1", one, 100))
	var superseded *workspace.Superseded
	require.ErrorAs(t, err, &superseded, "a run that is late stays late")

	// A rerun on an empty disk has what it begins with.
	empty, _ := s.gateway(t)
	rerun, err := empty.Open(t.Context(), workflows.OpenCheckoutInput{Mission: "port", Launch: 2, Commit: one.Commit, Of: 1})
	require.NoError(t, err)
	require.Equal(t, one.Commit, rerun.Commit)
	require.Equal(t, one.Commit, chainOf(t, empty, 2).Base)
	require.Empty(t, chainOf(t, empty, 2).Commits)
	_, err = empty.Open(t.Context(), workflows.OpenCheckoutInput{Mission: "port", Launch: 3, Commit: "0123456789012345678901234567890123456789", Of: 1})
	require.ErrorContains(t, err, "does not have commit 012345678901 of mission port any more")
}

func TestPartialResultsAreKept(t *testing.T) {
	s := newSite(t, config.Fleet{})
	g, _ := s.gateway(t)
	from, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	in := s.commits(t, "r1-1", from, 100)
	in.Partial, in.Last = "a person stopped it", true
	c, err := g.Commit(t.Context(), in)
	require.NoError(t, err)
	other, _ := s.gateway(t)
	results, err := other.results(t.Context(), api.ResultsRequest{Mission: "port", Launch: 1})
	require.NoError(t, err)
	require.Equal(t, c.Commit, results.(api.Results).Partial[0].Commit)

	// Asked again, when what the run brought is gone.
	store, err := s.js.ObjectStore(t.Context(), in.Results.Bucket)
	require.NoError(t, err)
	require.NoError(t, store.Delete(t.Context(), in.Results.Name))
	again, err := g.Commit(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, workflows.Checkout{Branch: "tidewait/port/1-partial/work", Commit: c.Commit}, again)
	in.RunID = "r1-2"
	_, err = g.Commit(t.Context(), in)
	require.ErrorContains(t, err, "object r1-1 is not in bucket tidewait-results-n1 any more", "another run has another commit")
}

// TestDamageIsReplaced damages a repository under a process, and between two.
func TestDamageIsReplaced(t *testing.T) {
	s := newSite(t, config.Fleet{})
	g, disk := s.gateway(t)
	open := s.opens(t, 1, "read me\n")
	from, err := g.Open(t.Context(), open)
	require.NoError(t, err)
	one, err := g.Commit(t.Context(), s.commits(t, "r1-1", from, 100))
	require.NoError(t, err)
	repo := filepath.Join(disk, "missions", "port.git")
	damage := map[string]func(){
		"the refs are gone":    func() { require.NoError(t, os.RemoveAll(filepath.Join(repo, "refs"))) },
		"the objects are gone": func() { require.NoError(t, os.RemoveAll(filepath.Join(repo, "objects"))) },
		"HEAD is empty":        func() { require.NoError(t, os.WriteFile(filepath.Join(repo, "HEAD"), nil, 0o600)) },
		"all of it is gone":    func() { require.NoError(t, os.RemoveAll(disk)) },
		"packs are cut": func() {
			packs, err := filepath.Glob(filepath.Join(repo, "objects", "pack", "*.pack"))
			require.NoError(t, err)
			require.NotEmpty(t, packs)
			for _, p := range packs {
				require.NoError(t, os.Chmod(p, 0o600))
				require.NoError(t, os.Truncate(p, 100))
			}
		},
	}
	for name, hurt := range damage {
		t.Run(name, func(t *testing.T) {
			hurt()
			results, err := g.results(t.Context(), api.ResultsRequest{Mission: "port", Launch: 1})
			require.NoError(t, err)
			require.Equal(t, one.Commit, results.(api.Results).Commits[0].Commit)
			hurt()
			g = s.gatewayOn(t, disk)
			archived, err := g.archive(t.Context(), api.ArchiveRequest{Mission: "port", Launch: 1})
			require.NoError(t, err)
			require.Equal(t, one.Commit, archived.(api.ArchiveReply).Commit)
			d, err := g.diff(t.Context(), api.DiffRequest{Mission: "port", Launch: 1, Phase: "work"})
			require.NoError(t, err)
			require.Contains(t, d.(api.Diff).Text, "+++ b/r1-1.txt\n")
			hurt()
			again, err := g.Open(t.Context(), open)
			require.NoError(t, err, "also when it is met while the launch is opened again")
			require.Equal(t, one.Commit, again.Commit)
		})
	}
}

func TestAFullBucketRefusesTheCommit(t *testing.T) {
	s := newSite(t, config.Fleet{BundleBytes: 1 << 20})
	g, _ := s.gateway(t)
	from, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	in := s.commits(t, "r1-1", from, 2<<20)
	var full *Full
	_, err = g.Commit(t.Context(), in)
	require.ErrorAs(t, err, &full)
	require.Equal(t, api.BucketBundles, full.Bucket)
	require.Regexp(t, `^bucket tidewait-bundles is full: keep a bundle of commit [0-9a-f]{12}: .*maximum bytes exceeded`, err.Error())
	sent := s.nc.Stats().OutBytes
	_, err = g.Commit(t.Context(), in)
	require.ErrorAs(t, err, &full)
	require.Regexp(t, `^bucket tidewait-bundles is full: 210\d{4} bytes are needed and 104\d{4} are free$`, err.Error())
	require.Less(t, s.nc.Stats().OutBytes-sent, uint64(64<<10), "it is asked for room, and not tried")
	partial := in
	partial.Partial, partial.RunID = "a person stopped it", "r2-1"
	partial.Parent = chainOf(t, g, 1).Head()
	_, err = g.Commit(t.Context(), partial)
	require.NoError(t, err, "nobody waits for what is no result")

	require.NoError(t, provision.Streams(t.Context(), s.js, config.Fleet{ObjectTTL: time.Hour, LogTTL: time.Hour, LogBytes: 1 << 20}))
	_, err = g.Commit(t.Context(), in)
	require.NoError(t, err)
	other, _ := s.gateway(t)
	_, err = other.results(t.Context(), api.ResultsRequest{Mission: "port", Launch: 1})
	require.NoError(t, err)
	require.Len(t, chainOf(t, other, 1).Commits, 1)
}

// TestAWaitForRoomOutlivesWhatWasBrought has a full bucket until NATS has removed
// the upload, or the results, for which there was no room.
func TestAWaitForRoomOutlivesWhatWasBrought(t *testing.T) {
	remove := func(s *site, o workflows.Object) {
		store, err := s.js.ObjectStore(t.Context(), o.Bucket)
		require.NoError(t, err)
		require.NoError(t, store.Delete(t.Context(), o.Name))
	}
	widen := func(s *site) {
		require.NoError(t, provision.Streams(t.Context(), s.js, config.Fleet{ObjectTTL: time.Hour, LogTTL: time.Hour, LogBytes: 1 << 20}))
	}
	var full *Full

	s := newSite(t, config.Fleet{BundleBytes: 1 << 20})
	g, _ := s.gateway(t)
	open := s.opens(t, 1, string(noise(2<<20)))
	_, err := g.Open(t.Context(), open)
	require.ErrorAs(t, err, &full)
	remove(s, open.Bundle)
	widen(s)
	from, err := g.Open(t.Context(), open)
	require.NoError(t, err)
	require.Equal(t, open.Head, from.Commit)

	s = newSite(t, config.Fleet{BundleBytes: 1 << 20})
	g, _ = s.gateway(t)
	from, err = g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	in := s.commits(t, "r1-1", from, 2<<20)
	_, err = g.Commit(t.Context(), in)
	require.ErrorAs(t, err, &full)
	remove(s, in.Results)
	widen(s)
	c, err := g.Commit(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []string{c.Commit}, chainOf(t, g, 1).Commits)
}

// TestARecordNamesOnlyWhatIsKept has a bundle of another commit than was asked for,
// and one that is lost and not needed again.
func TestARecordNamesOnlyWhatIsKept(t *testing.T) {
	s := newSite(t, config.Fleet{})
	g, _ := s.gateway(t)
	from, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	store, err := s.js.ObjectStore(t.Context(), api.BucketBundles)
	require.NoError(t, err)
	r, err := readRecord(t.Context(), store, "port", 1)
	require.NoError(t, err)
	want := slices.Clone(r.Bundles)
	err = g.addBundle(t.Context(), store, r, "", "", strings.Repeat("a", 40), false)
	require.ErrorContains(t, err, "the branch moved to commit "+from.Commit[:12])
	require.Equal(t, want, r.Bundles)
	require.ElementsMatch(t, []string{"launch/port/1", "bundle/port/1/" + from.Commit}, s.bundles(t))

	r.Bundles = append(r.Bundles, bundleInfo{Object: "bundle/port/1/lost", Phase: "gone", Commit: from.Commit})
	require.NoError(t, writeRecord(t.Context(), store, r))
	require.NoError(t, g.keep(t.Context(), "port", 1, false))
	r, err = readRecord(t.Context(), store, "port", 1)
	require.NoError(t, err)
	require.Equal(t, want, r.Bundles)
}

// TestWhatIsReadIsNotReplaced asks twice for the same files and the same branch.
func TestWhatIsReadIsNotReplaced(t *testing.T) {
	s := newSite(t, config.Fleet{})
	g, _ := s.gateway(t)
	g.Retention.Objects = time.Hour
	store, err := s.js.ObjectStore(t.Context(), api.BucketWorkspaces)
	require.NoError(t, err)
	version := func(object string) string {
		info, err := store.GetInfo(t.Context(), object)
		require.NoError(t, err)
		return info.NUID
	}
	open := s.opens(t, 1, "read me\n")
	from, err := g.Open(t.Context(), open)
	require.NoError(t, err)
	first := version(from.Input.Name)
	again, err := g.Open(t.Context(), open)
	require.NoError(t, err)
	require.Equal(t, from, again)
	require.Equal(t, first, version(from.Input.Name))

	bundle := func() api.BundleReply {
		b, err := g.bundle(t.Context(), api.ResultsRequest{Mission: "port", Launch: 1})
		require.NoError(t, err)
		return b.(api.BundleReply)
	}
	before := bundle()
	first = version(before.Object)
	require.Equal(t, before, bundle())
	require.Equal(t, first, version(before.Object))
	_, err = g.Commit(t.Context(), s.commits(t, "r1-1", from, 100))
	require.NoError(t, err)
	require.NotEqual(t, before.Object, bundle().Object)
	require.Equal(t, first, version(before.Object))

	// What is about to be removed is put again.
	first = version(from.Input.Name)
	g.Retention.Objects = time.Nanosecond
	again, err = g.checkout(t.Context(), "port", from.Branch, from.Commit)
	require.NoError(t, err)
	require.Equal(t, from, again)
	require.NotEqual(t, first, version(from.Input.Name))
}

// TestWhatIsAskedForAtOnceIsPutOnce: whoever reads the first of two objects of one
// name is cut off by the second, and one of them is never removed.
func TestWhatIsAskedForAtOnceIsPutOnce(t *testing.T) {
	s := newSite(t, config.Fleet{})
	g, _ := s.gateway(t)
	g.Retention.Objects = time.Hour
	_, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	stream, err := s.js.Stream(t.Context(), "OBJ_"+api.BucketWorkspaces)
	require.NoError(t, err)
	before := stream.CachedInfo().State.Msgs
	asked := make(chan error)
	for range 8 {
		go func() {
			_, err := g.bundle(t.Context(), api.ResultsRequest{Mission: "port", Launch: 1})
			asked <- err
		}()
	}
	for range 8 {
		require.NoError(t, <-asked)
	}
	info, err := stream.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, before+2, info.State.Msgs, "one chunk, and what describes it")
}

// TestWhatIsKeptAgainIsReadFirst has NATS lose what was kept of a repository that was
// damaged meanwhile: git would make a bundle of it without a word.
func TestWhatIsKeptAgainIsReadFirst(t *testing.T) {
	s := newSite(t, config.Fleet{})
	g, disk := s.gateway(t)
	from, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	store, err := s.js.ObjectStore(t.Context(), api.BucketBundles)
	require.NoError(t, err)
	lose := func(names ...string) {
		for _, name := range names {
			require.NoError(t, store.Delete(t.Context(), name))
		}
	}
	lose("bundle/port/1/" + from.Commit)
	require.NoError(t, g.keep(t.Context(), "port", 1, false))

	spoil(t, disk, from.Commit+":README")
	lose("bundle/port/1/" + from.Commit)
	require.ErrorContains(t, g.keep(t.Context(), "port", 1, false), "read launch 1 of mission port")
	lose(recordName("port", 1))
	require.ErrorContains(t, g.keep(t.Context(), "port", 1, false), "read launch 1 of mission port")
	_, err = store.GetInfo(t.Context(), "bundle/port/1/"+from.Commit)
	require.ErrorIs(t, err, jetstream.ErrObjectNotFound)
}

// needs is an engine that is asked which launches are needed. It answers with an
// error until somebody says what it is to answer.
func (s *site) needs(t testing.TB) *atomic.Pointer[func() []api.LaunchRef] {
	t.Helper()
	answer := &atomic.Pointer[func() []api.LaunchRef]{}
	up := make(chan struct{})
	engine := natsrpc.Service{Name: "engine", Version: "0.0.1", Log: slog.New(slog.DiscardHandler), Handlers: map[string]natsrpc.Handler{
		api.SubjectGatewayNeeds: natsrpc.With(func(context.Context, api.NeedsRequest) (any, error) {
			say := answer.Load()
			if say == nil {
				return nil, errors.New("nobody should have asked")
			}
			return api.NeedsReply{Needed: (*say)()}, nil
		}),
	}}
	go func() { _ = engine.Serve(t.Context(), s.nc, func() { close(up) }) }()
	<-up
	return answer
}

// TestALaunchThatIsNeededMeanwhileStays is needed between two questions.
func TestALaunchThatIsNeededMeanwhileStays(t *testing.T) {
	s := newSite(t, config.Fleet{})
	needs := s.needs(t)
	g, _ := s.gateway(t)
	_, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	g.Retention = Retention{Results: time.Nanosecond, Objects: time.Hour}
	var asked atomic.Int32
	answer := func() []api.LaunchRef {
		if asked.Add(1) == 1 {
			return nil
		}
		return []api.LaunchRef{{Mission: "port", Launch: 1}}
	}
	needs.Store(&answer)
	require.NoError(t, g.tidyOnce(t.Context(), s.nc))
	require.EqualValues(t, 2, asked.Load())
	require.Len(t, s.bundles(t), 2)
	require.NotEmpty(t, chainOf(t, g, 1).Base)
}

// TestAHeldMissionHasItsFilesOnAnEmptyDisk loses the disk and then the files.
func TestAHeldMissionHasItsFilesOnAnEmptyDisk(t *testing.T) {
	s := newSite(t, config.Fleet{})
	needs := s.needs(t)
	answer := func() []api.LaunchRef { return []api.LaunchRef{{Mission: "port", Launch: 1}} }
	needs.Store(&answer)
	g, _ := s.gateway(t)
	from, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	inputs, err := s.js.ObjectStore(t.Context(), api.BucketWorkspaces)
	require.NoError(t, err)
	require.NoError(t, inputs.Delete(t.Context(), from.Input.Name))

	empty, _ := s.gateway(t)
	empty.Retention = Retention{Results: time.Nanosecond, Objects: time.Hour}
	require.NoError(t, empty.tidyOnce(t.Context(), s.nc))
	info, err := inputs.GetInfo(t.Context(), from.Input.Name)
	require.NoError(t, err)
	digest, err := hexDigest(info.Digest)
	require.NoError(t, err)
	require.Equal(t, from.Input.SHA256, digest)
}

// TestWhatIsAskedAbout is asked about long before its time is over, so that a launch
// that ends has a record that says when.
func TestWhatIsAskedAbout(t *testing.T) {
	g := &Gateway{}
	launches := []kept{
		{LaunchRef: api.LaunchRef{Mission: "young", Launch: 1}, since: time.Now().Add(-7 * time.Minute)},
		{LaunchRef: api.LaunchRef{Mission: "old", Launch: 1}, since: time.Now().Add(-8 * time.Minute)},
	}
	for _, r := range []Retention{
		{Results: time.Hour, Objects: 24 * time.Hour}, {Results: 24 * time.Hour, Objects: time.Hour}, {Objects: time.Hour},
	} {
		g.Retention = r
		require.Equal(t, launches[1:], g.old(launches), "%+v", r)
	}
}

// TestALookThatFailedIsTakenAgain starts a process behind another one, away from
// NATS.
func TestALookThatFailedIsTakenAgain(t *testing.T) {
	s := newSite(t, config.Fleet{})
	g, disk := s.gateway(t)
	from, err := g.Open(t.Context(), s.opens(t, 1, "read me\n"))
	require.NoError(t, err)
	other, _ := s.gateway(t)
	_, err = other.results(t.Context(), api.ResultsRequest{Mission: "port", Launch: 1})
	require.NoError(t, err)
	c, err := other.Commit(t.Context(), s.commits(t, "r1-1", from, 100))
	require.NoError(t, err)

	g = s.gatewayOn(t, disk)
	away, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = g.results(away, api.ResultsRequest{Mission: "port", Launch: 1})
	require.ErrorIs(t, err, context.Canceled)
	results, err := g.results(t.Context(), api.ResultsRequest{Mission: "port", Launch: 1})
	require.NoError(t, err)
	require.Equal(t, c.Commit, results.(api.Results).Commits[0].Commit)
}

// TestTidy keeps what is needed, and removes the rest when its time is over.
func TestTidy(t *testing.T) {
	s := newSite(t, config.Fleet{})
	ctx := t.Context()
	needs := s.needs(t)
	isNeeded := func(launches ...api.LaunchRef) {
		answer := func() []api.LaunchRef { return launches }
		needs.Store(&answer)
	}
	g, _ := s.gateway(t)
	var from workflows.Checkout
	for launch := 1; launch <= 2; launch++ {
		var err error
		from, err = g.Open(ctx, s.opens(t, launch, fmt.Sprintf("launch %d\n", launch)))
		require.NoError(t, err)
	}
	one := chainOf(t, g, 1).Head()
	inputs, err := s.js.ObjectStore(ctx, api.BucketWorkspaces)
	require.NoError(t, err)
	require.NoError(t, inputs.Delete(ctx, from.Input.Name)) // as NATS does in time

	// What is young is not asked about.
	g.Retention = Retention{Results: time.Hour, Objects: 2 * time.Hour}
	require.NoError(t, g.tidyOnce(ctx, s.nc))
	require.Len(t, s.bundles(t), 4)

	g.Retention = Retention{Results: time.Nanosecond, Objects: time.Hour}
	isNeeded(api.LaunchRef{Mission: "port", Launch: 2})
	require.NoError(t, g.tidyOnce(ctx, s.nc))
	require.ElementsMatch(t, []string{"launch/port/2", "bundle/port/2/" + from.Commit}, s.bundles(t))
	_, err = g.Checkouts.Chain(ctx, "port", 1)
	require.ErrorContains(t, err, "no checkout of launch 1")
	_, err = inputs.GetInfo(ctx, from.Input.Name)
	require.NoError(t, err, "the next phase has its files")
	_, err = g.results(ctx, api.ResultsRequest{Mission: "port", Launch: 1})
	require.ErrorContains(t, err, "no checkout of launch 1", "what is removed does not come back from "+one)

	// Of another gateway's: only when it is surely not going to.
	elsewhere, _ := s.gateway(t)
	elsewhere.ID = "other"
	elsewhere.Retention = Retention{Results: time.Hour, Objects: time.Nanosecond}
	isNeeded()
	require.NoError(t, elsewhere.tidyOnce(ctx, s.nc))
	require.Len(t, s.bundles(t), 2)

	// A bucket that was lost is filled again from the disk.
	require.NoError(t, s.js.DeleteObjectStore(ctx, api.BucketBundles))
	require.NoError(t, provision.Streams(ctx, s.js, config.Fleet{ObjectTTL: time.Hour, LogTTL: time.Hour, LogBytes: 1 << 20}))
	g.Retention = Retention{Results: time.Hour, Objects: 2 * time.Hour}
	require.NoError(t, g.tidyOnce(ctx, s.nc))
	require.ElementsMatch(t, []string{"launch/port/2", "bundle/port/2/" + from.Commit}, s.bundles(t))

	// Whoever was stopped after the bundles goes on with the record.
	store, err := s.js.ObjectStore(ctx, api.BucketBundles)
	require.NoError(t, err)
	require.NoError(t, g.purgeNamed(ctx, store, "bundle/port/2/"+from.Commit))
	g.Retention.Results = time.Nanosecond
	isNeeded()
	require.NoError(t, g.tidyOnce(ctx, s.nc))
	require.Empty(t, s.bundles(t))
	launches, err := g.Checkouts.Launches(ctx)
	require.NoError(t, err)
	require.Empty(t, launches)
}

func BenchmarkCommit(b *testing.B) {
	for _, kept := range []bool{false, true} {
		b.Run(fmt.Sprintf("kept=%t", kept), func(b *testing.B) {
			s := newSite(b, config.Fleet{})
			g, _ := s.gateway(b)
			from, err := g.Open(b.Context(), s.opens(b, 1, "read me\n"))
			require.NoError(b, err)
			i := 0
			for b.Loop() {
				i++
				in := s.commits(b, fmt.Sprintf("r%d-1", i), from, 100)
				in.Last = true
				c, err := g.commit(b.Context(), in)
				require.NoError(b, err)
				if kept {
					require.NoError(b, g.keep(b.Context(), "port", 1, false))
				}
				from.Commit = c.Commit
			}
		})
	}
}
