package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tidewait/internal/api"
	"tidewait/internal/gateway"
)

// source answers questions about the results of a launch. Files it makes are removed
// by the caller.
type source interface {
	log(ctx context.Context) (api.Results, error)
	diff(ctx context.Context, phase string, stat bool) (api.Diff, error)
	// bundle makes a file of the launch's branch, or of the partial one of a phase.
	bundle(ctx context.Context, partial string) (path, branch string, err error)
	// archive makes a tar of the files of a phase's commit, or of the latest one.
	archive(ctx context.Context, phase string) (path, commit string, err error)
}

// holder is the gateway that holds a launch.
type holder struct {
	e       *engine
	gateway string
	mission string
	launch  int
}

func (h holder) log(ctx context.Context) (api.Results, error) {
	return askGateway[api.Results](ctx, h.e, h.gateway, "log", api.ResultsRequest{Mission: h.mission, Launch: h.launch})
}

func (h holder) diff(ctx context.Context, phase string, stat bool) (api.Diff, error) {
	return askGateway[api.Diff](ctx, h.e, h.gateway, "diff", api.DiffRequest{Mission: h.mission, Launch: h.launch, Phase: phase, Stat: stat})
}

func (h holder) bundle(ctx context.Context, partial string) (path, branch string, err error) {
	request := api.ResultsRequest{Mission: h.mission, Launch: h.launch, Partial: partial}
	return downloaded(ctx, h, "bundle", request, func(r api.BundleReply) (made, string) { return made{r.Bucket, r.Object, r.SHA256}, r.Branch })
}

func (h holder) archive(ctx context.Context, phase string) (path, commit string, err error) {
	request := api.ArchiveRequest{Mission: h.mission, Launch: h.launch, Phase: phase}
	return downloaded(ctx, h, "archive", request, func(r api.ArchiveReply) (made, string) { return made{r.Bucket, r.Object, r.SHA256}, r.Commit })
}

// made is an object that a gateway has made of something.
type made struct{ bucket, object, sha256 string }

// downloaded asks a gateway to make an object, and downloads it. It returns what the
// object is of, too.
func downloaded[Reply any](ctx context.Context, h holder, verb string, request any, read func(Reply) (made, string)) (path, of string, err error) {
	reply, err := askGateway[Reply](ctx, h.e, h.gateway, verb, request)
	if err != nil {
		return "", "", err
	}
	object, of := read(reply)
	path, err = h.e.download(ctx, object.bucket, object.object, object.sha256)
	return path, of, err
}

// keptAway is what a gateway that does not answer has kept of a launch in the object
// store.
type keptAway struct{ *gateway.Kept }

// kept opens what is kept of a launch, in a directory of its own, which done removes.
// There may be nothing: nil.
func (e *engine) kept(ctx context.Context, mission string, launch int) (k *keptAway, done func(), err error) {
	store, err := e.bucket(ctx, api.BucketBundles)
	if err != nil {
		return nil, nil, nil //nolint:nilerr // who has no object store has nothing in it
	}
	js, err := jetstream.New(e.conn)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "tidewait-kept-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a directory for what is kept: %w", err)
	}
	done = func() { os.RemoveAll(dir) }
	opened, err := gateway.OpenKept(ctx, js, store, dir, mission, launch)
	if err != nil || opened == nil {
		done()
		return nil, nil, err
	}
	return &keptAway{opened}, done, nil
}

// said says whose answer it is.
func (k *keptAway) said() string {
	return fmt.Sprintf("tidewait: gateway %s does not answer; this is from what it has kept in the object store, last at %s",
		k.Gateway, k.At.Format(time.RFC3339))
}

func (k *keptAway) log(ctx context.Context) (api.Results, error) { return k.Results(ctx) }

func (k *keptAway) diff(ctx context.Context, phase string, stat bool) (api.Diff, error) {
	return k.Diff(ctx, phase, stat)
}

func (k *keptAway) bundle(ctx context.Context, partial string) (path, branch string, err error) {
	path, err = temporary(func(w io.Writer) (err error) {
		branch, err = k.Bundle(ctx, partial, w)
		return err
	})
	return path, branch, err
}

func (k *keptAway) archive(ctx context.Context, phase string) (path, commit string, err error) {
	path, err = temporary(func(w io.Writer) (err error) {
		commit, err = k.Archive(ctx, phase, w)
		return err
	})
	return path, commit, err
}

// temporary makes a file of what write gives. The caller removes it.
func temporary(write func(io.Writer) error) (path string, err error) {
	file, err := os.CreateTemp("", "tidewait-results-*")
	if err != nil {
		return "", fmt.Errorf("cannot write the results: %w", err)
	}
	err = write(file)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}
