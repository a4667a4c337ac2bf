package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"tidewait/internal/workspace"
)

// healing is what is known of the repositories since the process started.
type healing struct {
	mu    sync.Mutex
	locks map[string]*sync.Mutex // by mission; held while a repository or a record is replaced
	seen  map[string]bool        // missions and launches that were looked at
	stays map[string]string      // damage by mission that restoring did not mend
}

func (h *healing) lock(mission string) *sync.Mutex {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.locks == nil {
		h.locks = map[string]*sync.Mutex{}
	}
	if h.locks[mission] == nil {
		h.locks[mission] = &sync.Mutex{}
	}
	return h.locks[mission]
}

// stay remembers damage that restoring did not mend.
func (h *healing) stay(mission, damage string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stays == nil {
		h.stays = map[string]string{}
	}
	h.stays[mission] = damage
}

// stayed is the damage of a mission that restoring did not mend.
func (h *healing) stayed(mission string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stays[mission]
}

// saw reports whether something was looked at since the process started.
func (h *healing) saw(what string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[what]
}

// see remembers that something was looked at.
func (h *healing) see(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen == nil {
		h.seen = map[string]bool{}
	}
	h.seen[what] = true
}

// healed does work on a launch's checkout. A checkout that is not there, is
// behind what is kept of it, or is damaged is restored from its bundles, and the
// work is done again.
func healed[T any](ctx context.Context, g *Gateway, mission string, launch int, work func() (T, error)) (T, error) {
	var result T
	if err := g.lookFirst(ctx, mission, launch); err != nil {
		return result, err
	}
	result, err := work()
	if err == nil || ctx.Err() != nil {
		return result, err
	}
	better, healErr := g.heal(ctx, mission, launch, err)
	if healErr != nil {
		return result, healErr
	}
	if !better {
		return result, err
	}
	return work()
}

// heal reports whether the checkout of a launch is better than it was when work
// failed with an error.
func (g *Gateway) heal(ctx context.Context, mission string, launch int, failure error) (bool, error) {
	var (
		refused    *workspace.Refused
		superseded *workspace.Superseded
	)
	lock := g.healing.lock(mission)
	lock.Lock()
	defer lock.Unlock()
	switch {
	case errors.As(failure, &superseded), errors.As(failure, &refused) && refused.Code == workspace.Missing:
		return g.restore(ctx, mission, launch)
	case workspace.GitFailed(failure):
		return g.replaceDamaged(ctx, mission, launch, true)
	}
	return false, nil // an engine, the object store or a source failed, and no repository
}

// replaceDamaged sets a damaged repository aside and restores a launch of it. The
// mission's other launches are restored when they are asked for. It is done only
// when everything that can still be read is kept elsewhere, and not again when the
// same damage is there after it.
func (g *Gateway) replaceDamaged(ctx context.Context, mission string, launch int, deep bool) (bool, error) {
	damage, err := g.Checkouts.Damage(ctx, mission, deep)
	if err != nil || damage == "" || g.healing.stayed(mission) == damage {
		return false, err
	}
	if kept, err := g.replaceable(ctx, mission, launch); err != nil || !kept {
		g.Log.Error("a checkout is damaged, and not all of it is kept elsewhere", "mission", mission, "launch", launch, "damage", damage, "error", err)
		return false, err
	}
	aside, err := g.Checkouts.SetAside(mission)
	if err != nil {
		return false, fmt.Errorf("set the damaged checkout of mission %s aside: %w", mission, err)
	}
	g.Log.Error("a checkout is damaged and was set aside", "mission", mission, "damage", damage, "dir", aside)
	if _, err := g.restore(ctx, mission, launch); err != nil {
		return false, err
	}
	left, err := g.Checkouts.Damage(ctx, mission, deep)
	if left != "" {
		g.Log.Error("a checkout is damaged after it was restored and stays as it is", "mission", mission, "damage", left)
		g.healing.stay(mission, left)
	}
	return true, err
}

// replaceable keeps what is not kept yet of a damaged repository, and reports
// whether it may go as far as a launch is concerned: it is kept elsewhere, or was
// never in it. What git cannot read is lost already.
func (g *Gateway) replaceable(ctx context.Context, mission string, launch int) (bool, error) {
	here, err := g.Checkouts.Launches(ctx)
	if err != nil {
		return false, err
	}
	for _, l := range here {
		if l.Mission != mission {
			continue
		}
		var refused *workspace.Refused
		if err := g.keepLocked(ctx, mission, l.Launch, false, true); err != nil && !workspace.GitFailed(err) && !errors.As(err, &refused) {
			return false, fmt.Errorf("keep launch %d of the damaged checkout of mission %s: %w", l.Launch, mission, err)
		}
	}
	_, err = g.Checkouts.Chain(ctx, mission, launch)
	var refused *workspace.Refused
	if errors.As(err, &refused) && refused.Code == workspace.Missing {
		return true, nil
	}
	return g.isKept(ctx, mission, launch)
}

// lookFirst looks at a launch that is used for the first time since the process
// started: its repository may be damaged, since the machine may have been lost,
// or be behind what another process with the same id has done meanwhile. A look
// that fails is tried again at the next use.
func (g *Gateway) lookFirst(ctx context.Context, mission string, launch int) error {
	this := fmt.Sprintf("%s/%d", mission, launch)
	if g.healing.saw(this) {
		return nil
	}
	lock := g.healing.lock(mission)
	lock.Lock()
	defer lock.Unlock()
	if g.healing.saw(this) {
		return nil // whoever held the lock did it
	}
	if !g.healing.saw(mission) {
		if _, err := g.replaceDamaged(ctx, mission, launch, false); err != nil {
			return err
		}
		g.healing.see(mission)
	}
	if _, err := g.restore(ctx, mission, launch); workspace.GitFailed(err) {
		// What a shallow look does not see may be in the way.
		better, healErr := g.replaceDamaged(ctx, mission, launch, true)
		if healErr != nil || !better {
			return errors.Join(err, healErr)
		}
	} else if err != nil {
		return err
	}
	g.healing.see(this)
	return nil
}
