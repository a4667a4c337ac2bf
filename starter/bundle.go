package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tidewait/config"
	"tidewait/internal/api"
	"tidewait/internal/mission"
	"tidewait/internal/objects"
	"tidewait/internal/workspace"
)

// sendWorkspace bundles a local workspace and puts it into the object store
// under its digest, unless it is there. A remote workspace returns zero: the
// gateway fetches it.
func (c *cli) sendWorkspace(ctx context.Context, e *engine, s config.Settings, w mission.Workspace) (workspace.Bundle, error) {
	if w.Remote() {
		return workspace.Bundle{}, nil
	}
	file, err := os.CreateTemp("", "tidewait-workspace-*.bundle")
	if err != nil {
		return workspace.Bundle{}, fmt.Errorf("cannot write the workspace bundle: %w", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()

	bundle, err := writeBundle(ctx, w, file)
	switch {
	case ctx.Err() != nil:
		return bundle, ctx.Err()
	case err != nil:
		return bundle, failed("cannot bundle the workspace: %w", err)
	}
	if bundle.Dirty > 0 {
		c.note("tidewait: %s has uncommitted changes in %s; they are not part of the mission, which starts from commit %s",
			w.Git, files(bundle.Dirty), bundle.Head)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return bundle, fmt.Errorf("cannot read the workspace bundle back: %w", err)
	}
	return bundle, upload(ctx, e, s, bundle, file)
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

func writeBundle(ctx context.Context, w mission.Workspace, out io.Writer) (workspace.Bundle, error) {
	if w.Path != "" {
		return workspace.BundleDir(ctx, w.Path, out)
	}
	return workspace.BundleRepo(ctx, w.Git, w.Ref, out)
}

// upload stores a bundle. One that is there is kept, unless it is old enough to
// expire before the mission's gateway has read it.
func upload(ctx context.Context, e *engine, s config.Settings, bundle workspace.Bundle, content io.Reader) error {
	store, err := e.bucket(ctx, api.BucketWorkspaces)
	if err != nil {
		return err
	}
	known, err := store.GetInfo(ctx, bundle.SHA256)
	if err == nil && time.Since(known.ModTime) < s.Fleet.ObjectTTL/2 {
		return nil
	}
	if _, err := objects.Put(ctx, store, bundle.SHA256, content); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refused := notAllowed(e.conn); refused != nil {
			return failed("NATS on %s does not allow this: %w", e.url, refused)
		}
		return failed("cannot put the workspace (%d bytes) into the object store %s: %w", bundle.Bytes, api.BucketWorkspaces, err)
	}
	return nil
}

// bucket opens a bucket of the object store, which an engine or gateway creates.
func (e *engine) bucket(ctx context.Context, name string) (jetstream.ObjectStore, error) {
	js, err := jetstream.New(e.conn)
	if err != nil {
		return nil, fmt.Errorf("cannot use JetStream: %w", err)
	}
	opening, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	store, err := js.ObjectStore(opening, name)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, jetstream.ErrBucketNotFound):
		return nil, unreachable("NATS on %s has no object store %s; create it with `tidewait setup`", e.url, name)
	case err != nil && notAllowed(e.conn) != nil:
		return nil, failed("NATS on %s does not allow this: %w", e.url, notAllowed(e.conn))
	case err != nil:
		return nil, unreachable("cannot reach the object store %s on %s: %w; does NATS run with JetStream?", name, e.url, err)
	}
	return store, nil
}
