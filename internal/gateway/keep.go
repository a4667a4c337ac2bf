package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidewait/internal/api"
	"tidewait/internal/mission"
	"tidewait/internal/objects"
	"tidewait/internal/workspace"
)

// record says which bundles make a launch. It is an object of its own, written
// after the bundles it names, so that a launch is always restored whole.
type record struct {
	Mission string       `json:"mission"`
	Launch  int          `json:"launch"`
	Gateway string       `json:"gateway"`
	Base    string       `json:"base"`    // the commit the launch started from
	Bundles []bundleInfo `json:"bundles"` // each needs those before it
}

// bundleInfo is one git bundle in the object store.
type bundleInfo struct {
	Object string `json:"object"`
	Phase  string `json:"phase,omitempty"` // whose partial branch it is of; empty: the launch's own
	Commit string `json:"commit"`          // the branch is at with it
	Since  string `json:"since,omitempty"` // the commit whose history is not in it
	Bytes  int64  `json:"bytes"`
}

func recordName(mission string, launch int) string {
	return recordPrefix + mission + "/" + strconv.Itoa(launch)
}

const recordPrefix = "launch/"

// Keys of a record's metadata, so that a list of objects tells whose they are.
const (
	metaMission = "mission"
	metaLaunch  = "launch"
	metaGateway = "gateway"
)

// keep puts what is not kept yet of a launch into the object store: a bundle of
// what is new since the last one. It is called before a commit is answered, so
// that what was answered survives the loss of this gateway's disk. Calling it
// again stores nothing again. opened says that the launch may have been opened just
// now, so that nothing need be kept of it yet.
func (g *Gateway) keep(ctx context.Context, mission string, launch int, opened bool) error {
	lock := g.healing.lock(mission)
	lock.Lock()
	defer lock.Unlock()
	return g.keepLocked(ctx, mission, launch, opened, false)
}

// keepLocked is keep by whoever holds the mission's lock. What is in doubt is read
// before it is kept, and so is what has to be kept again: it has lain on the disk for
// any time.
func (g *Gateway) keepLocked(ctx context.Context, mission string, launch int, opened, doubt bool) error {
	store, err := g.bundles(ctx)
	if err != nil {
		return err
	}
	chain, err := g.Checkouts.Chain(ctx, mission, launch)
	if err != nil {
		return err
	}
	r, err := readRecord(ctx, store, mission, launch)
	if err != nil {
		return err
	}
	if r == nil || r.Base != chain.Base {
		r = &record{Mission: mission, Launch: launch, Base: chain.Base}
		doubt = doubt || !opened || len(chain.Commits) > 0
	}
	r.Gateway = g.ID
	before := slices.Clone(r.Bundles)
	if err := g.dropLost(ctx, store, r); err != nil {
		return err
	}
	doubt = doubt || len(r.Bundles) < len(before)
	since := r.last("", chain.Has)
	if since != chain.Head() || len(r.Bundles) == 0 {
		if err := g.addBundle(ctx, store, r, "", since, chain.Head(), doubt); err != nil {
			return err
		}
	}
	partial := g.addPartials(ctx, store, r, chain, doubt)
	if !slices.Equal(r.Bundles, before) {
		if err := writeRecord(ctx, store, r); err != nil {
			return err
		}
	}
	return partial
}

func (g *Gateway) addPartials(ctx context.Context, store jetstream.ObjectStore, r *record, chain workspace.Chain, doubt bool) error {
	for _, phase := range slices.Sorted(maps.Keys(chain.Partial)) {
		commit := chain.Partial[phase]
		if r.last(phase, func(kept string) bool { return kept == commit }) != "" {
			continue
		}
		if err := g.addBundle(ctx, store, r, phase, chain.Head(), commit, doubt); err != nil {
			return err
		}
	}
	return nil
}

// last is the latest commit of a branch that is kept and that ok accepts.
func (r *record) last(phase string, ok func(commit string) bool) string {
	for i := len(r.Bundles) - 1; i >= 0; i-- {
		if b := r.Bundles[i]; b.Phase == phase && ok(b.Commit) {
			return b.Commit
		}
	}
	return ""
}

// dropLost takes a bundle that is not there any more out of a record, with those
// behind it, which are worth nothing without.
func (g *Gateway) dropLost(ctx context.Context, store jetstream.ObjectStore, r *record) error {
	for i, b := range r.Bundles {
		_, err := store.GetInfo(ctx, b.Object)
		if errors.Is(err, jetstream.ErrObjectNotFound) {
			g.Log.Warn("a bundle is lost and is made again", "mission", r.Mission, "launch", r.Launch, "object", b.Object)
			r.Bundles = r.Bundles[:i]
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for bundle %s: %w", b.Object, err)
		}
	}
	return nil
}

func (g *Gateway) addBundle(ctx context.Context, store jetstream.ObjectStore, r *record, phase, since, head string, doubt bool) error {
	if doubt {
		if err := g.Checkouts.Read(ctx, r.Mission, r.Launch, phase, since); err != nil {
			return err
		}
	}
	b := bundleInfo{Object: fmt.Sprintf("bundle/%s/%d/%s", r.Mission, r.Launch, head), Phase: phase, Commit: head, Since: since}
	info, err := g.put(ctx, store, api.BucketBundles, b.Object, fmt.Sprintf("keep a bundle of commit %.12s", head), func(w io.Writer) error {
		made, err := g.Checkouts.BundleSince(ctx, r.Mission, r.Launch, phase, since, w)
		if err == nil && made.Head != head {
			err = fmt.Errorf("the branch moved to commit %.12s meanwhile", made.Head)
		}
		return err
	})
	if err != nil {
		return err
	}
	b.Bytes = int64(info.Size) //nolint:gosec // an object's size fits
	r.Bundles = append(r.Bundles, b)
	return nil
}

// readRecord returns nil when nothing is kept of a launch.
func readRecord(ctx context.Context, store jetstream.ObjectStore, mission string, launch int) (*record, error) {
	name := recordName(mission, launch)
	data, err := store.GetBytes(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, nil //nolint:nilnil // no record, no error
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of bucket %s: %w", name, api.BucketBundles, err)
	}
	r, err := parseRecord(data)
	if err != nil {
		return nil, fmt.Errorf("object %s of bucket %s is not a record of bundles: %w", name, api.BucketBundles, err)
	}
	return r, nil
}

// parseRecord reads a record. Commits and phases become parts of what git is told, and
// whoever may write to the bucket wrote them, so they must be what they say.
func parseRecord(data []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	if r.Base != "" && !commitPattern.MatchString(r.Base) {
		return nil, fmt.Errorf("its base %.50q is no commit", r.Base)
	}
	for _, b := range r.Bundles {
		switch {
		case !commitPattern.MatchString(b.Commit):
			return nil, fmt.Errorf("%.50q is no commit", b.Commit)
		case b.Since != "" && !commitPattern.MatchString(b.Since):
			return nil, fmt.Errorf("%.50q is no commit", b.Since)
		case b.Phase != "" && !mission.IsName(b.Phase):
			return nil, fmt.Errorf("%.50q is no phase", b.Phase)
		}
	}
	return r, nil
}

var commitPattern = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

func writeRecord(ctx context.Context, store jetstream.ObjectStore, r *record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	meta := jetstream.ObjectMeta{
		Name:     recordName(r.Mission, r.Launch),
		Metadata: map[string]string{metaMission: r.Mission, metaLaunch: strconv.Itoa(r.Launch), metaGateway: r.Gateway},
	}
	if _, err := store.Put(ctx, meta, bytes.NewReader(data)); err != nil {
		return fullOr(api.BucketBundles, fmt.Errorf("record the bundles of launch %d of mission %s: %w", r.Launch, r.Mission, err))
	}
	return nil
}

func (g *Gateway) bundles(ctx context.Context) (jetstream.ObjectStore, error) {
	store, err := g.JS.ObjectStore(ctx, api.BucketBundles)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", api.BucketBundles, err)
	}
	return store, nil
}

// isKept reports whether there is anything to restore a launch from.
func (g *Gateway) isKept(ctx context.Context, mission string, launch int) (bool, error) {
	store, err := g.bundles(ctx)
	if err != nil {
		return false, err
	}
	r, err := readRecord(ctx, store, mission, launch)
	return r != nil && len(r.Bundles) > 0, err
}

// restore brings a launch back from its bundles and reports whether there was
// something to bring back.
func (g *Gateway) restore(ctx context.Context, mission string, launch int) (bool, error) {
	store, err := g.bundles(ctx)
	if err != nil {
		return false, err
	}
	r, err := readRecord(ctx, store, mission, launch)
	if err != nil || r == nil || len(r.Bundles) == 0 {
		return false, err
	}
	if chain, err := g.Checkouts.Chain(ctx, mission, launch); err == nil && r.within(chain) {
		return false, nil
	}
	g.Log.Warn("restoring a launch from its bundles", "mission", mission, "launch", launch, "bundles", len(r.Bundles))
	if err := r.restore(ctx, g.JS.Conn(), store, g.Checkouts); err != nil {
		return false, err
	}
	return true, nil
}

// restore makes a launch in checkouts what its bundles say.
func (r *record) restore(ctx context.Context, nc *nats.Conn, store jetstream.ObjectStore, checkouts *workspace.Gateway) error {
	kept := make([]workspace.Kept, len(r.Bundles))
	for i, b := range r.Bundles {
		kept[i] = workspace.Kept{Phase: b.Phase, Commit: b.Commit, Open: func() io.ReadCloser { return objects.Open(ctx, nc, store, b.Object) }}
	}
	err := checkouts.Restore(ctx, r.Mission, r.Launch, r.Base, kept)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return &workspace.Refused{
			Code:    workspace.Missing,
			Message: fmt.Sprintf("the bundles of launch %d of mission %s are not all there any more; launch the mission again", r.Launch, r.Mission),
		}
	}
	return err
}

// within reports whether a checkout has all that is recorded.
func (r *record) within(chain workspace.Chain) bool {
	for _, b := range r.Bundles {
		if b.Phase == "" && !chain.Has(b.Commit) || b.Phase != "" && chain.Partial[b.Phase] == "" {
			return false
		}
	}
	return true
}
