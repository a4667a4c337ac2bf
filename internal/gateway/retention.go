package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidewait/internal/api"
	"tidewait/internal/natsrpc"
	"tidewait/internal/workspace"
	"tidewait/workflows"
)

// Retention is how long a gateway keeps what is of launches that ended.
type Retention struct {
	Results time.Duration // branches and bundles; 0: for ever
	Objects time.Duration // after which NATS removes the files that a phase starts from
	Every   time.Duration // between two looks, at least
}

// every is between two looks.
func (r Retention) every() time.Duration { return max(min(time.Hour, r.share()), r.Every) }

// share is an eighth of the shorter of the two times.
func (r Retention) share() time.Duration {
	if r.Results > 0 {
		return min(r.Objects, r.Results) / 8
	}
	return r.Objects / 8
}

// tidy removes what was kept for long enough, and keeps what is needed, until ctx
// ends.
func (g *Gateway) tidy(ctx context.Context, nc *nats.Conn) {
	every := g.Retention.every()
	if every <= 0 {
		return // nothing was said of how long
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := g.tidyOnce(ctx, nc); err != nil && ctx.Err() == nil {
			g.Log.Warn("looking for what was kept for long enough was not finished", "error", err)
		}
	}
}

// kept is a launch that has a record in the object store.
type kept struct {
	api.LaunchRef
	gateway string
	since   time.Time // when something was kept of it, or it was needed, last
}

func (g *Gateway) tidyOnce(ctx context.Context, nc *nats.Conn) error {
	store, err := g.bundles(ctx)
	if err != nil {
		return err
	}
	objects, err := store.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return fmt.Errorf("list bucket %s: %w", api.BucketBundles, err)
	}
	launches := recorded(objects)
	known := make(map[api.LaunchRef]bool, len(launches))
	for _, l := range launches {
		known[l.LaunchRef] = true
	}
	errs := []error{g.keepUnrecorded(ctx, known), g.expireOrphans(ctx, known, objects)}
	for chunk := range slices.Chunk(g.old(launches), 500) {
		errs = append(errs, g.judge(ctx, nc, store, chunk))
	}
	if g.Retention.Results > 0 {
		errs = append(errs, g.Checkouts.ForgetDamaged(g.Retention.Results))
	}
	return errors.Join(errs...)
}

// recorded lists the launches that have a record.
func recorded(objects []*jetstream.ObjectInfo) []kept {
	var launches []kept
	for _, o := range objects {
		launch, err := strconv.Atoi(o.Metadata[metaLaunch])
		if !strings.HasPrefix(o.Name, recordPrefix) || err != nil {
			continue
		}
		launches = append(launches, kept{api.LaunchRef{Mission: o.Metadata[metaMission], Launch: launch}, o.Metadata[metaGateway], o.ModTime})
	}
	return launches
}

// keepUnrecorded keeps launches of which NATS has lost what was kept.
func (g *Gateway) keepUnrecorded(ctx context.Context, recorded map[api.LaunchRef]bool) error {
	here, err := g.Checkouts.Launches(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range here {
		if !recorded[api.LaunchRef(l)] {
			errs = append(errs, g.keep(ctx, l.Mission, l.Launch, false))
		}
	}
	return errors.Join(errs...)
}

// orphanAge is when a bundle without a record belongs to nobody: a record is
// written right after its bundle.
const orphanAge = time.Hour

// expireOrphans removes bundles whose launch has no record: somebody was stopped
// between the two.
func (g *Gateway) expireOrphans(ctx context.Context, recorded map[api.LaunchRef]bool, objects []*jetstream.ObjectInfo) error {
	var errs []error
	for _, o := range objects {
		parts := strings.Split(o.Name, "/") // bundle, mission, launch, commit
		if parts[0] != "bundle" || len(parts) != 4 || time.Since(o.ModTime) < orphanAge {
			continue
		}
		launch, err := strconv.Atoi(parts[2])
		if err != nil || !recorded[api.LaunchRef{Mission: parts[1], Launch: launch}] {
			errs = append(errs, g.purge(ctx, o))
		}
	}
	return errors.Join(errs...)
}

// old returns the launches to ask about: those that may have to go, whose files for
// the next phase may be about to, or that may be needed still. With the time between
// two looks, the record of a launch that is needed is never older than a quarter of
// what it is kept for.
func (g *Gateway) old(launches []kept) []kept {
	limit := g.Retention.share()
	return slices.DeleteFunc(slices.Clone(launches), func(k kept) bool { return time.Since(k.since) < limit })
}

// judge asks the engine which launches are needed, and acts on it.
func (g *Gateway) judge(ctx context.Context, nc *nats.Conn, store jetstream.ObjectStore, launches []kept) error {
	needed, err := g.needed(ctx, nc, launches...)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range launches {
		own := l.gateway == g.ID
		age, limit := time.Since(l.since), g.Retention.Results
		if !own {
			limit *= 2 // its own gateway had the time to do it
		}
		switch {
		case slices.Contains(needed, l.LaunchRef):
			if own {
				errs = append(errs, g.refresh(ctx, l), g.touch(ctx, store, l))
			}
		case g.Retention.Results > 0 && age > limit:
			errs = append(errs, g.forget(ctx, nc, store, l))
		}
	}
	return errors.Join(errs...)
}

// needed asks the engine which of some launches are needed.
func (g *Gateway) needed(ctx context.Context, nc *nats.Conn, launches ...kept) ([]api.LaunchRef, error) {
	ctx, cancel := context.WithTimeout(ctx, max(g.Heartbeat, 10*time.Second))
	defer cancel()
	request := api.NeedsRequest{Gateway: g.ID}
	for _, l := range launches {
		request.Launches = append(request.Launches, l.LaunchRef)
	}
	var reply api.NeedsReply
	if err := natsrpc.Ask(ctx, nc, api.SubjectGatewayNeeds, request, &reply); err != nil {
		return nil, fmt.Errorf("ask which launches are needed: %w", err)
	}
	return reply.Needed, nil
}

// refresh stores the files again that the next phase of a launch starts from, when
// NATS is going to remove them: the phase may be held for days.
func (g *Gateway) refresh(ctx context.Context, l kept) error {
	_, err := healed(ctx, g, l.Mission, l.Launch, func() (workflows.Checkout, error) {
		chain, err := g.Checkouts.Chain(ctx, l.Mission, l.Launch)
		if err != nil {
			return workflows.Checkout{}, err
		}
		return g.checkout(ctx, l.Mission, workspace.Branch(l.Mission, l.Launch), chain.Head())
	})
	return err
}

// touch writes a record again, so that the time for which a launch is kept is
// counted from when it was needed last.
func (g *Gateway) touch(ctx context.Context, store jetstream.ObjectStore, l kept) error {
	lock := g.healing.lock(l.Mission)
	lock.Lock()
	defer lock.Unlock()
	r, err := readRecord(ctx, store, l.Mission, l.Launch)
	if err != nil || r == nil {
		return err
	}
	return writeRecord(ctx, store, r)
}

// forget removes a launch: what is here, its bundles, and at last the record of
// them, so that whoever is stopped in between goes on with it later. The launch may
// be needed since the engine was asked about many of them, so it is asked again.
func (g *Gateway) forget(ctx context.Context, nc *nats.Conn, store jetstream.ObjectStore, l kept) error {
	lock := g.healing.lock(l.Mission)
	lock.Lock()
	defer lock.Unlock()
	if needed, err := g.needed(ctx, nc, l); err != nil || slices.Contains(needed, l.LaunchRef) {
		return err
	}
	if err := g.Checkouts.Forget(ctx, l.Mission, l.Launch); err != nil {
		return err
	}
	r, err := readRecord(ctx, store, l.Mission, l.Launch)
	if err != nil || r == nil {
		return err
	}
	for _, b := range r.Bundles {
		if err := g.purgeNamed(ctx, store, b.Object); err != nil {
			return err
		}
	}
	g.Log.Info("removed a launch that was kept for long enough", "mission", l.Mission, "launch", l.Launch, "bundles", len(r.Bundles))
	return g.purgeNamed(ctx, store, recordName(l.Mission, l.Launch))
}

func (g *Gateway) purgeNamed(ctx context.Context, store jetstream.ObjectStore, name string) error {
	info, err := store.GetInfo(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove object %s: %w", name, err)
	}
	return g.purge(ctx, info)
}

// purge removes an object without a trace. Deleting it would leave a marker for
// ever, and would need room in a bucket that may be full.
func (g *Gateway) purge(ctx context.Context, o *jetstream.ObjectInfo) error {
	stream, err := g.JS.Stream(ctx, "OBJ_"+api.BucketBundles)
	if err != nil {
		return fmt.Errorf("remove object %s: %w", o.Name, err)
	}
	for _, subject := range []string{
		fmt.Sprintf("$O.%s.C.%s", api.BucketBundles, o.NUID),
		fmt.Sprintf("$O.%s.M.%s", api.BucketBundles, base64.URLEncoding.EncodeToString([]byte(o.Name))),
	} {
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return fmt.Errorf("remove object %s: %w", o.Name, err)
		}
	}
	return nil
}
