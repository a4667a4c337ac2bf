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
	reply, err := askGateway[api.BundleReply](ctx, h.e, h.gateway, "bundle", request)
	if err != nil {
		return "", "", err
	}
	path, err = h.e.download(ctx, reply.Bucket, reply.Object, reply.SHA256)
	return path, reply.Branch, err
}

func (h holder) archive(ctx context.Context, phase string) (path, commit string, err error) {
	request := api.ArchiveRequest{Mission: h.mission, Launch: h.launch, Phase: phase}
	reply, err := askGateway[api.ArchiveReply](ctx, h.e, h.gateway, "archive", request)
	if err != nil {
		return "", "", err
	}
	path, err = h.e.download(ctx, reply.Bucket, reply.Object, reply.SHA256)
	return path, reply.Commit, err
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
