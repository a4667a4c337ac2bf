package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"tidewait/internal/api"
	"tidewait/internal/render"
	"tidewait/internal/workspace"
)

// resultsOptions is what the flags of `mission results` say.
type resultsOptions struct {
	launch int
	diff   bool
	stat   bool
	phase  string
	export string
	into   string
	push   string
	// partial is a cancelled phase whose own branch is brought home.
	partial string
}

func resultsCommand(c *cli) *cobra.Command {
	var o resultsOptions
	cmd := &cobra.Command{
		Use:   "results NAME",
		Short: "Show what a mission's phases committed, or bring it home",
		Example: `  tidewait mission results nightly-port
  tidewait mission results nightly-port --diff --phase build
  tidewait mission results nightly-port --export ./tree
  tidewait mission results nightly-port --export - | tar -t
  tidewait mission results nightly-port --into ./repo
  tidewait mission results nightly-port --into ./repo --push
  tidewait mission results nightly-port --into ./repo --partial build`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeMissions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error { return c.results(ctx, e, args[0], o) })
		},
	}
	addLaunch(cmd, &o.launch)
	cmd.Flags().BoolVar(&o.diff, "diff", false, "show what each phase changed")
	cmd.Flags().BoolVar(&o.stat, "stat", false, "show what each phase did to each file")
	cmd.Flags().StringVar(&o.phase, "phase", "", "only this phase's")
	cmd.Flags().StringVar(&o.export, "export", "", "write the files of the latest commit, or of --phase, into this empty directory; -: a tar on standard output")
	cmd.Flags().StringVar(&o.into, "into", "", "fetch the mission's branch into the git repository in this directory")
	cmd.Flags().StringVar(&o.push, "push", "", "with --into: push the branch to this remote of the repository (default origin)")
	cmd.Flags().Lookup("push").NoOptDefVal = "origin"
	cmd.Flags().StringVar(&o.partial, "partial", "", "with --into: the branch of what this cancelled phase had made")
	return cmd
}

// check refuses flags that say nothing together.
func (o resultsOptions) check() error {
	asked := 0
	for _, is := range []bool{o.diff, o.stat, o.export != "", o.into != ""} {
		if is {
			asked++
		}
	}
	switch {
	case asked > 1:
		return usage("--diff, --stat, --export and --into are different questions; ask one")
	case o.into != "" && o.phase != "":
		return usage("--into fetches the whole branch; leave out --phase")
	case o.partial != "" && o.into == "":
		return usage("--partial says which branch --into fetches; add --into DIR")
	case o.push != "" && o.into == "":
		return usage("--push pushes what --into has fetched; add --into DIR")
	}
	return nil
}

func (c *cli) results(ctx context.Context, e *engine, name string, o resultsOptions) error {
	detail, err := showMission(ctx, e, name, o.launch)
	if err != nil {
		return err
	}
	if detail.Gateway == "" {
		return failed("mission %s has no results: it is %s and no gateway holds it", name, detail.Status)
	}
	err = c.resultsOf(ctx, e, detail, o)
	if isNotFound(err) {
		return orExpired(err, detail)
	}
	return err
}

// resultsOf answers from the gateway that holds a launch.
func (c *cli) resultsOf(ctx context.Context, e *engine, detail api.MissionDetail, o resultsOptions) error {
	name := detail.Name
	request := api.ResultsRequest{Mission: name, Launch: detail.Launch}
	if o.into != "" {
		request.Partial = o.partial
		return c.bringHome(ctx, e, detail.Gateway, request, o)
	}
	if o.export != "" {
		return c.export(ctx, e, detail.Gateway, api.ArchiveRequest{Mission: name, Launch: detail.Launch, Phase: o.phase}, o.export)
	}
	results, err := askGateway[api.Results](ctx, e, detail.Gateway, "log", request)
	if err != nil {
		return err
	}
	if o.phase != "" {
		results.Commits = slices.DeleteFunc(results.Commits, func(k api.Commit) bool { return k.Phase != o.phase })
		if len(results.Commits) == 0 {
			return failed("phase %q of mission %s has committed nothing", o.phase, name)
		}
	}
	if o.diff || o.stat {
		return c.diffs(ctx, e, detail.Gateway, request, results, o.stat)
	}
	return c.print(results, time.Now(), func(o render.Options) string { return o.Results(results) })
}

// orExpired says that results are gone because they were kept for long enough, if
// that is so.
func orExpired(err error, m api.MissionDetail) error {
	for _, x := range m.Expired {
		if x.What == "results" {
			return failed("the results of launch %d of mission %s were kept for %s and have expired", m.Launch, m.Name, render.Duration(x.Kept))
		}
	}
	return err
}

// diffs prints what each commit changed, in order.
func (c *cli) diffs(ctx context.Context, e *engine, gateway string, r api.ResultsRequest, results api.Results, stat bool) error {
	diffs := make([]api.Diff, len(results.Commits))
	for i, commit := range results.Commits {
		var err error
		diffs[i], err = askGateway[api.Diff](ctx, e, gateway, "diff", api.DiffRequest{
			Mission: r.Mission, Launch: r.Launch, Phase: commit.Phase, Stat: stat,
		})
		if err != nil {
			return err
		}
		if diffs[i].Cut {
			what := "diff"
			if stat {
				what = "list of files"
			}
			c.note("tidewait: the %s of phase %q is cut; fetch the branch for the whole with --into", what, commit.Phase)
		}
	}
	return c.print(diffs, time.Now(), func(o render.Options) string {
		if stat {
			return o.Stats(diffs)
		}
		text := ""
		for _, d := range diffs {
			text += o.Diff(d)
		}
		return text
	})
}

// fetched is the structured output of `mission results --into`.
type fetched struct {
	Into   string `json:"into"`
	Branch string `json:"branch"`
	Commit string `json:"commit"`           // what the branch points at
	Pushed string `json:"pushed,omitempty"` // the remote it was pushed to
}

// bringHome fetches the mission's branch into a local repository.
func (c *cli) bringHome(ctx context.Context, e *engine, gateway string, r api.ResultsRequest, o resultsOptions) error {
	dir := o.into
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usage("--into %s is not a directory; name a git repository", dir)
	}
	reply, err := askGateway[api.BundleReply](ctx, e, gateway, "bundle", r)
	if err != nil {
		return err
	}
	path, err := e.download(ctx, reply.Bucket, reply.Object, reply.SHA256)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	commit, err := workspace.FetchInto(ctx, dir, path, reply.Branch)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return failed("cannot fetch branch %s into %s: %w", reply.Branch, dir, err)
	}
	report := fetched{Into: dir, Branch: reply.Branch, Commit: commit, Pushed: o.push}
	if o.push != "" {
		err := workspace.Push(ctx, dir, o.push, reply.Branch)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return failed("branch %s is in %s, but was not pushed: %w", reply.Branch, dir, err)
		}
	}
	return c.print(report, time.Now(), func(render.Options) string {
		text := fmt.Sprintf("branch %s is now in %s at %s; see it with: git -C %s log %s\n", reply.Branch, dir, commit, dir, reply.Branch)
		if o.push != "" {
			text += fmt.Sprintf("it was pushed to %s\n", o.push)
		}
		return text
	})
}

// download writes an object to a temporary file and checks its digest. The
// caller removes the file.
func (e *engine) download(ctx context.Context, bucket, name, sum string) (path string, err error) {
	store, err := e.bucket(ctx, bucket)
	if err != nil {
		return "", err
	}
	object, err := store.Get(ctx, name)
	if err != nil {
		return "", failed("cannot get the object %s from %s: %w", name, bucket, err)
	}
	defer object.Close()
	file, err := os.CreateTemp("", "tidewait-results-*")
	if err != nil {
		return "", fmt.Errorf("cannot write the results: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(file.Name())
		}
	}()
	defer file.Close()
	digest := sha256.New()
	if _, err := io.Copy(io.MultiWriter(file, digest), object); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", failed("the object %s did not arrive whole: %w", name, err)
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != sum {
		return "", failed("the object %s has the digest %s, not %s; nothing was taken from it", name, got, sum)
	}
	return file.Name(), nil
}
