// Package gateway is the gateway role: it holds the checkouts of missions,
// hands their files to nodes through the object store, and makes results
// commits.
package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"tidewait/internal/api"
	"tidewait/internal/health"
	"tidewait/internal/natsrpc"
	"tidewait/internal/objects"
	"tidewait/internal/secret/source"
	"tidewait/internal/workspace"
	"tidewait/workflows"
)

// author signs the commits of phases.
var author = workspace.Person{Name: "Tidewait", Email: "tidewait@localhost"}

// Gateway is one gateway. It is safe for concurrent use.
type Gateway struct {
	ID        string
	Version   string
	Checkouts *workspace.Gateway
	Secrets   source.Sources
	JS        jetstream.JetStream
	NATS      *nats.Conn // to ask engines whether a run may commit
	Heartbeat time.Duration
	Retention Retention
	Log       *slog.Logger
	Loop      *health.Loop // that heartbeats go on; nil: nobody watches
	// Served is given what tells whether each service is still served; nil: nobody is.
	Served func(service string) func(check func() error)

	healing healing
	sizes   sizes
	putting locks // names of objects of bucket tidewait-workspaces
}

// Open opens a launch's checkout and prepares the files its first phase starts
// from. A launch that was opened before, and whose checkout is lost, is restored
// instead of being opened again: its source may have moved on.
func (g *Gateway) Open(ctx context.Context, in workflows.OpenCheckoutInput) (workflows.Checkout, error) {
	if err := g.lookFirst(ctx, in.Mission, in.Launch); err != nil {
		return workflows.Checkout{}, err
	}
	opened, err := healed(ctx, g, in.Mission, sourceOf(in), func() (workspace.Checkout, error) {
		if err := g.reopen(ctx, in); err != nil {
			return workspace.Checkout{}, err
		}
		c, err := g.open(ctx, in)
		if err != nil {
			return c, err
		}
		return c, g.keep(ctx, in.Mission, in.Launch, true)
	})
	if err != nil {
		return workflows.Checkout{}, err
	}
	return g.checkout(ctx, in.Mission, opened.Branch, opened.Head)
}

// reopen brings a launch back that is not here, when it was opened before.
func (g *Gateway) reopen(ctx context.Context, in workflows.OpenCheckoutInput) error {
	lock := g.healing.lock(in.Mission)
	lock.Lock()
	defer lock.Unlock()
	_, err := g.restore(ctx, in.Mission, in.Launch)
	return err
}

// sourceOf is the launch that has what a launch starts from.
func sourceOf(in workflows.OpenCheckoutInput) int {
	if in.Of > 0 {
		return in.Of
	}
	return in.Launch
}

func (g *Gateway) open(ctx context.Context, in workflows.OpenCheckoutInput) (workspace.Checkout, error) {
	// Of a launch that is open already the upload may be gone.
	if there, err := g.Checkouts.Chain(ctx, in.Mission, in.Launch); err == nil {
		return workspace.Checkout{Base: there.Base, Branch: workspace.Branch(in.Mission, in.Launch), Head: there.Head()}, nil
	}
	req := workspace.OpenRequest{
		Mission: in.Mission, Launch: in.Launch, URL: in.URL, Ref: in.Ref, Head: in.Head, SHA256: in.Bundle.SHA256, Commit: in.Commit,
	}
	if in.URL == "" && in.Commit == "" {
		bundle, _, err := g.get(ctx, in.Bundle)
		if err != nil {
			return workspace.Checkout{}, err
		}
		defer bundle.Close()
		req.Bundle = bundle
	}
	return g.Checkouts.Open(ctx, req)
}

// Commit makes the results of a run a commit on the launch's branch, and
// prepares the files the next phase starts from, if there is one. It returns when
// the commit is kept beside this gateway's disk, too. A run that does not count any
// more is refused: [*Stale].
func (g *Gateway) Commit(ctx context.Context, in workflows.CommitResultsInput) (workflows.Checkout, error) {
	c, err := healed(ctx, g, in.Mission, in.Launch, func() (workflows.Checkout, error) {
		c, err := g.commit(ctx, in)
		if err != nil {
			return c, err
		}
		return c, g.keep(ctx, in.Mission, in.Launch, false)
	})
	if err != nil {
		return g.unkept(in, c, err)
	}
	if in.Last {
		return c, nil
	}
	return g.checkout(ctx, in.Mission, c.Branch, c.Commit)
}

// unkept is the answer to a commit that was not made, or could not be kept elsewhere.
// A phase waits until it can. What a cancelled run had made is no result, and nobody waits for
// it: it stays on this gateway's disk alone when there is no room.
func (g *Gateway) unkept(in workflows.CommitResultsInput, c workflows.Checkout, err error) (workflows.Checkout, error) {
	var full *Full
	if in.Partial == "" || !errors.As(err, &full) {
		return workflows.Checkout{}, err
	}
	g.Log.Error("partial results are on this gateway's disk only", "mission", in.Mission, "launch", in.Launch, "phase", in.Phase, "error", err)
	return c, nil
}

func (g *Gateway) commit(ctx context.Context, in workflows.CommitResultsInput) (workflows.Checkout, error) {
	req := workspace.CommitRequest{
		Mission: in.Mission, Launch: in.Launch, Phase: in.Phase, Run: in.RunID, Parent: in.Parent, TreeIn: in.TreeIn,
		Subject: fmt.Sprintf("%s: %s", in.Mission, in.Phase), Author: author,
		Admit: func() error { return g.mayCommit(ctx, in) },
	}
	// A run may have been committed long ago, and wait only for room to keep it.
	before, branch := g.Checkouts.Committed, workspace.Branch(in.Mission, in.Launch)
	if in.Partial != "" {
		before, branch = g.Checkouts.CommittedPartial, workspace.PartialBranch(in.Mission, in.Launch, in.Phase)
	}
	if c, done, err := before(ctx, req); err != nil || done {
		return workflows.Checkout{Branch: branch, Commit: c.Commit}, err
	}
	parts, err := g.parts(ctx, in)
	defer parts.close()
	if err != nil {
		return workflows.Checkout{}, fmt.Errorf("read the results of run %s: %w", in.RunID, err)
	}
	req.Parts, req.When = parts.list, parts.latest
	if in.Partial != "" {
		return g.commitPartial(ctx, req, in.Partial)
	}
	c, err := g.Checkouts.Commit(ctx, req)
	if err != nil {
		return workflows.Checkout{}, err
	}
	return workflows.Checkout{Branch: branch, Commit: c.Commit}, nil
}

// commitPartial makes what a cancelled run had made a commit on a branch of its
// own, which says so.
func (g *Gateway) commitPartial(ctx context.Context, req workspace.CommitRequest, why string) (workflows.Checkout, error) {
	req.Partial = why
	req.Subject += " (partial)"
	c, err := g.Checkouts.CommitPartial(ctx, req)
	return workflows.Checkout{Branch: workspace.PartialBranch(req.Mission, req.Launch, req.Phase), Commit: c.Commit}, err
}

// get returns a reader of an object, and what the object is.
func (g *Gateway) get(ctx context.Context, o workflows.Object) (io.ReadCloser, *jetstream.ObjectInfo, error) {
	store, err := g.JS.ObjectStore(ctx, o.Bucket)
	if err != nil {
		return nil, nil, fmt.Errorf("open bucket %s: %w", o.Bucket, err)
	}
	info, err := store.GetInfo(ctx, o.Name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, nil, &workspace.Refused{
			Code: workspace.Missing, Message: fmt.Sprintf("object %s is not in bucket %s any more; launch the mission again", o.Name, o.Bucket),
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read object %s of bucket %s: %w", o.Name, o.Bucket, err)
	}
	return objects.Open(ctx, g.JS.Conn(), store, o.Name), info, nil
}

// checkout puts a tar of a commit's tree into the object store, unless it is
// there already and stays for a while: the name is the commit's. One at a time does
// so, since what is put twice at once cuts off who reads it.
func (g *Gateway) checkout(ctx context.Context, mission, branch, commit string) (workflows.Checkout, error) {
	store, err := g.JS.ObjectStore(ctx, api.BucketWorkspaces)
	if err != nil {
		return workflows.Checkout{}, fmt.Errorf("open bucket %s: %w", api.BucketWorkspaces, err)
	}
	name := inputName(mission, commit)
	defer g.putting.take(name)()
	if digest, there := g.stored(ctx, store, name); there {
		tree, err := g.Checkouts.Tree(ctx, mission, commit)
		return workflows.Checkout{
			Branch: branch, Commit: commit, Tree: tree,
			Input: workflows.Object{Bucket: api.BucketWorkspaces, Name: name, SHA256: digest},
		}, err
	}
	var m workspace.Manifest
	info, err := g.put(ctx, store, api.BucketWorkspaces, name, "put the workspace into the object store", func(w io.Writer) (err error) {
		m, err = g.Checkouts.Archive(ctx, mission, commit, w)
		return err
	})
	if err != nil {
		return workflows.Checkout{}, err
	}
	digest, err := hexDigest(info.Digest)
	if err != nil {
		return workflows.Checkout{}, err
	}
	return workflows.Checkout{
		Branch: branch, Commit: commit, Tree: m.Tree,
		Input: workflows.Object{Bucket: api.BucketWorkspaces, Name: name, SHA256: digest},
	}, nil
}

// stored returns the SHA-256 of an object, and whether it is there for long enough
// to be read.
func (g *Gateway) stored(ctx context.Context, store jetstream.ObjectStore, name string) (digest string, there bool) {
	info, err := store.GetInfo(ctx, name)
	if err != nil || time.Since(info.ModTime) >= g.Retention.Objects/2 {
		return "", false
	}
	digest, err = hexDigest(info.Digest)
	return digest, err == nil
}

func inputName(mission, commit string) string { return "input." + mission + "." + commit }

// hexDigest reads the object store's form of a digest.
func hexDigest(digest string) (string, error) {
	text, ok := strings.CutPrefix(digest, "SHA-256=")
	if !ok {
		return "", fmt.Errorf("digest %q is not a SHA-256", digest)
	}
	sum, err := base64.URLEncoding.DecodeString(text)
	if err != nil || len(sum) != sha256.Size {
		return "", fmt.Errorf("digest %q is not a SHA-256", digest)
	}
	return hex.EncodeToString(sum), nil
}

// Run sends heartbeats, answers questions about checkouts, seals secrets and
// removes what was kept for long enough, until ctx ends.
// ready is called after the first heartbeat that was acknowledged.
func (g *Gateway) Run(ctx context.Context, nc *nats.Conn, ready func()) error {
	go g.beat(ctx, nc, ready)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { g.tidy(ctx, nc); return nil })
	group.Go(func() error { return g.serveSecrets(ctx, nc) })
	group.Go(func() error { return g.serveResults(ctx, nc) })
	return group.Wait()
}

func (g *Gateway) served(service string) func(func() error) {
	if g.Served == nil {
		return nil
	}
	return g.Served(service)
}

func (g *Gateway) serveResults(ctx context.Context, nc *nats.Conn) error {
	return natsrpc.Service{
		Name: "tidewait-gateway", Version: g.Version, Description: "results of missions on gateway " + g.ID,
		Handlers: map[string]natsrpc.Handler{
			api.SubjectGateway(g.ID, "log"):     natsrpc.With(g.results),
			api.SubjectGateway(g.ID, "diff"):    natsrpc.With(g.diff),
			api.SubjectGateway(g.ID, "bundle"):  natsrpc.With(g.bundle),
			api.SubjectGateway(g.ID, "archive"): natsrpc.With(g.archive),
		},
		Code: errorCode, Time: answerTime, Parallel: answersAtOnce, Served: g.served("gateway: results"), Log: g.Log,
	}.Serve(ctx, nc, nil)
}

// Bounds of answers: a checkout may have to be restored first, and packing a large
// branch takes its time.
const (
	answerTime    = 2 * time.Minute
	answersAtOnce = 4
)

func errorCode(err error) string {
	var refused *workspace.Refused
	if errors.As(err, &refused) && refused.Code == workspace.Missing {
		return "not_found"
	}
	return ""
}

func (g *Gateway) beat(ctx context.Context, nc *nats.Conn, ready func()) {
	tick := time.NewTicker(g.Heartbeat)
	defer tick.Stop()
	for {
		if err := g.beatOnce(ctx, nc); err == nil {
			if ready != nil {
				ready()
				ready = nil
			}
		} else if natsrpc.IsSkew(err) {
			g.Log.Error("the engine refuses this gateway for its release; it goes on asking, and no launch comes to it", "why", err)
		} else if ctx.Err() == nil {
			g.Log.Warn("heartbeat was not acknowledged", "error", err)
		}
		g.Loop.Beat()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (g *Gateway) beatOnce(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, g.Heartbeat)
	defer cancel()
	var reply api.GatewayReply
	return natsrpc.Ask(ctx, nc, api.SubjectGatewayHeartbeat(g.ID), api.GatewayHeartbeat{Gateway: g.ID, Version: g.Version}, &reply)
}

func (g *Gateway) results(ctx context.Context, r api.ResultsRequest) (any, error) {
	return healed(ctx, g, r.Mission, r.Launch, func() (any, error) { return readResults(ctx, g.Checkouts, r) })
}

func readResults(ctx context.Context, checkouts *workspace.Gateway, r api.ResultsRequest) (api.Results, error) {
	chain, err := checkouts.Chain(ctx, r.Mission, r.Launch)
	if err != nil {
		return api.Results{}, err
	}
	commits, err := checkouts.Log(ctx, r.Mission, r.Launch)
	if err != nil {
		return api.Results{}, err
	}
	partials, err := checkouts.Partials(ctx, r.Mission, r.Launch)
	if err != nil {
		return api.Results{}, err
	}
	out := api.Results{Branch: workspace.Branch(r.Mission, r.Launch), Base: chain.Base, Commits: []api.Commit{}}
	for _, c := range commits {
		out.Commits = append(out.Commits, commitOf(c))
	}
	for _, c := range partials {
		commit := commitOf(c)
		commit.Branch = workspace.PartialBranch(r.Mission, r.Launch, c.Phase)
		out.Partial = append(out.Partial, commit)
	}
	return out, nil
}

func commitOf(c workspace.CommitInfo) api.Commit {
	return api.Commit{
		Commit: c.Commit, Phase: c.Phase, Run: c.Run, Subject: c.Subject, When: c.When.UTC(),
		Files: c.Files, Insertions: c.Insertions, Deletions: c.Deletions,
	}
}

// maxDiff keeps a diff's reply below the server's payload limit.
const maxDiff = 512 << 10

// maxStat does so with the list of changed files.
const maxStat = 2000

func (g *Gateway) diff(ctx context.Context, r api.DiffRequest) (any, error) {
	return healed(ctx, g, r.Mission, r.Launch, func() (any, error) { return readDiff(ctx, g.Checkouts, r) })
}

func readDiff(ctx context.Context, checkouts *workspace.Gateway, r api.DiffRequest) (api.Diff, error) {
	commit, err := checkouts.PhaseCommit(ctx, r.Mission, r.Launch, r.Phase)
	if err != nil {
		return api.Diff{}, err
	}
	d := api.Diff{Phase: r.Phase, Commit: commit}
	if !r.Stat {
		d.Text, d.Cut, err = checkouts.Diff(ctx, r.Mission, r.Launch, r.Phase, maxDiff)
		return d, err
	}
	files, cut, err := checkouts.Stats(ctx, r.Mission, r.Launch, r.Phase, maxStat)
	d.Cut = cut
	room := maxDiff / 2
	for _, f := range files {
		if room -= len(f.Path); room < 0 {
			d.Cut = true
			break
		}
		d.Files = append(d.Files, api.FileStat(f))
	}
	return d, err
}

// archive puts the files of a commit into the object store.
func (g *Gateway) archive(ctx context.Context, r api.ArchiveRequest) (any, error) {
	return healed(ctx, g, r.Mission, r.Launch, func() (any, error) {
		commit, err := g.Checkouts.PhaseCommit(ctx, r.Mission, r.Launch, r.Phase)
		if err != nil {
			return nil, err
		}
		c, err := g.checkout(ctx, r.Mission, workspace.Branch(r.Mission, r.Launch), commit)
		return api.ArchiveReply{Bucket: c.Input.Bucket, Object: c.Input.Name, SHA256: c.Input.SHA256, Commit: commit}, err
	})
}

func (g *Gateway) bundle(ctx context.Context, r api.ResultsRequest) (any, error) {
	return healed(ctx, g, r.Mission, r.Launch, func() (any, error) { return g.putBranch(ctx, r) })
}

func (g *Gateway) putBranch(ctx context.Context, r api.ResultsRequest) (any, error) {
	store, err := g.JS.ObjectStore(ctx, api.BucketWorkspaces)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", api.BucketWorkspaces, err)
	}
	chain, err := g.Checkouts.Chain(ctx, r.Mission, r.Launch)
	if err != nil {
		return nil, err
	}
	name, branch, head := fmt.Sprintf("branch.%s.%d", r.Mission, r.Launch), workspace.Branch(r.Mission, r.Launch), chain.Head()
	if r.Partial != "" {
		name, branch, head = name+".partial."+r.Partial, workspace.PartialBranch(r.Mission, r.Launch, r.Partial), chain.Partial[r.Partial]
	}
	name += "." + head
	defer g.putting.take(name)()
	if digest, there := g.stored(ctx, store, name); there {
		return api.BundleReply{Bucket: api.BucketWorkspaces, Object: name, Branch: branch, SHA256: digest}, nil
	}
	var b workspace.Bundle
	_, err = g.put(ctx, store, api.BucketWorkspaces, name, "put branch "+branch+" into the object store", func(w io.Writer) (err error) {
		b, err = writeBranch(ctx, g.Checkouts, r, w)
		return err
	})
	if err != nil {
		return nil, err
	}
	return api.BundleReply{Bucket: api.BucketWorkspaces, Object: name, Branch: branch, SHA256: b.SHA256}, nil
}

// writeBranch writes a git bundle of a launch's branch, or of a partial one.
func writeBranch(ctx context.Context, checkouts *workspace.Gateway, r api.ResultsRequest, w io.Writer) (workspace.Bundle, error) {
	if r.Partial != "" {
		return checkouts.BundlePartial(ctx, r.Mission, r.Launch, r.Partial, w)
	}
	return checkouts.BundleBranch(ctx, r.Mission, r.Launch, false, w)
}
