package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// LaunchOf names a launch of a mission.
type LaunchOf struct {
	Mission string
	Launch  int
}

// Launches returns the launches that are open here. A repository that cannot be
// read is left out.
func (g *Gateway) Launches(ctx context.Context) ([]LaunchOf, error) {
	repos, err := filepath.Glob(filepath.Join(g.missions(), "*.git"))
	if err != nil {
		return nil, err
	}
	var launches []LaunchOf
	for _, dir := range repos {
		name := strings.TrimSuffix(filepath.Base(dir), ".git")
		out, err := bare(dir).output(ctx, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/tidewait/base/")
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			g.log.Warn("a checkout cannot be read", "mission", name, "error", err)
			continue
		}
		for number := range strings.FieldsSeq(out) {
			if launch, err := strconv.Atoi(number); err == nil {
				launches = append(launches, LaunchOf{name, launch})
			}
		}
	}
	return launches, nil
}

// keepUnreachable is for how long objects stay that nothing refers to, since a
// commit that is being made refers to its objects last.
const keepUnreachable = "1.hour.ago"

// Forget removes a launch: its branches, and the files that no other launch of
// the mission needs. One that is not here is success.
func (g *Gateway) Forget(ctx context.Context, name string, launch int) error {
	repo, err := g.existing(name)
	var refused *Refused
	if errors.As(err, &refused) {
		return nil
	}
	if err != nil {
		return err
	}
	out, err := repo.output(ctx, "for-each-ref", "--format=delete %(refname)", branchRef(name, launch), partialRef(name, launch, ""), baseRef(launch))
	if err != nil {
		return fmt.Errorf("launch %d of mission %s: %w", launch, name, err)
	}
	if out != "" {
		if err := repo.run(ctx, strings.NewReader(out+"\n"), nil, "update-ref", "--stdin"); err != nil {
			return fmt.Errorf("remove launch %d of mission %s: %w", launch, name, err)
		}
	}
	left, err := repo.output(ctx, "for-each-ref", "--count=1", "--format=%(refname)")
	if err != nil {
		return err
	}
	if left == "" {
		return g.removeRepository(name)
	}
	_, err = repo.slowly().output(ctx, "gc", "--quiet", "--prune="+keepUnreachable)
	return err
}

// removeRepository removes a repository at once, as far as others see.
func (g *Gateway) removeRepository(name string) error {
	s, err := newScratch(g.scratches())
	if err != nil {
		return err
	}
	defer s.remove()
	return os.Rename(g.directory(name), filepath.Join(s.dir, "gone.git"))
}

// ForgetDamaged removes repositories that were set aside longer than keep ago.
func (g *Gateway) ForgetDamaged(keep time.Duration) error {
	entries, err := os.ReadDir(g.damaged())
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, infoErr := e.Info()
		if infoErr == nil && time.Since(info.ModTime()) > keep {
			err = errors.Join(err, os.RemoveAll(filepath.Join(g.damaged(), e.Name())))
		}
	}
	return err
}
