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
	phase  string
	into   string
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
  tidewait mission results nightly-port --into ./repo
  tidewait mission results nightly-port --into ./repo --partial build`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeMissions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.into != "" && (o.diff || o.phase != "") {
				return usage("--into fetches the whole branch; leave out --diff and --phase")
			}
			if o.partial != "" && o.into == "" {
				return usage("--partial says which branch --into fetches; add --into DIR")
			}
			return c.withEngine(cmd, func(ctx context.Context, e *engine) error { return c.results(ctx, e, args[0], o) })
		},
	}
	addLaunch(cmd, &o.launch)
	cmd.Flags().BoolVar(&o.diff, "diff", false, "show what each phase changed")
	cmd.Flags().StringVar(&o.phase, "phase", "", "only this phase's")
	cmd.Flags().StringVar(&o.into, "into", "", "fetch the mission's branch into the git repository in this directory")
	cmd.Flags().StringVar(&o.partial, "partial", "", "with --into: the branch of what this cancelled phase had made")
	return cmd
}

func (c *cli) results(ctx context.Context, e *engine, name string, o resultsOptions) error {
	detail, err := showMission(ctx, e, name, o.launch)
	if err != nil {
		return err
	}
	if detail.Gateway == "" {
		return failed("mission %s has no results: it is %s and no gateway holds it", name, detail.Status)
	}
	request := api.ResultsRequest{Mission: name, Launch: detail.Launch}
	if o.into != "" {
		request.Partial = o.partial
		return c.bringHome(ctx, e, detail.Gateway, request, o.into)
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
	if o.diff {
		return c.diffs(ctx, e, detail.Gateway, request, results)
	}
	return c.print(results, time.Now(), func(o render.Options) string { return o.Results(results) })
}

// diffs prints what each commit changed, in order.
func (c *cli) diffs(ctx context.Context, e *engine, gateway string, r api.ResultsRequest, results api.Results) error {
	diffs := make([]api.Diff, len(results.Commits))
	for i, commit := range results.Commits {
		var err error
		diffs[i], err = askGateway[api.Diff](ctx, e, gateway, "diff", api.DiffRequest{
			Mission: r.Mission, Launch: r.Launch, Phase: commit.Phase,
		})
		if err != nil {
			return err
		}
		if diffs[i].Cut {
			c.note("tidewait: the diff of phase %q is cut; fetch the branch for the whole with --into", commit.Phase)
		}
	}
	return c.print(diffs, time.Now(), func(o render.Options) string {
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
	Commit string `json:"commit"` // what the branch points at
}

// bringHome fetches the mission's branch into a local repository.
func (c *cli) bringHome(ctx context.Context, e *engine, gateway string, r api.ResultsRequest, dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usage("--into %s is not a directory; name a git repository", dir)
	}
	reply, err := askGateway[api.BundleReply](ctx, e, gateway, "bundle", r)
	if err != nil {
		return err
	}
	path, err := e.download(ctx, reply)
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
	report := fetched{Into: dir, Branch: reply.Branch, Commit: commit}
	return c.print(report, time.Now(), func(render.Options) string {
		return fmt.Sprintf("branch %s is now in %s at %s; see it with: git -C %s log %s\n", reply.Branch, dir, commit, dir, reply.Branch)
	})
}

// download writes an object to a temporary file and checks its digest. The
// caller removes the file.
func (e *engine) download(ctx context.Context, reply api.BundleReply) (path string, err error) {
	store, err := e.bucket(ctx, reply.Bucket)
	if err != nil {
		return "", err
	}
	object, err := store.Get(ctx, reply.Object)
	if err != nil {
		return "", failed("cannot get the bundle %s from %s: %w", reply.Object, reply.Bucket, err)
	}
	defer object.Close()
	file, err := os.CreateTemp("", "tidewait-results-*.bundle")
	if err != nil {
		return "", fmt.Errorf("cannot write the bundle: %w", err)
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
		return "", failed("the bundle %s did not arrive whole: %w", reply.Object, err)
	}
	if sum := hex.EncodeToString(digest.Sum(nil)); sum != reply.SHA256 {
		return "", failed("the bundle %s has the digest %s, not %s; nothing was fetched", reply.Object, sum, reply.SHA256)
	}
	return file.Name(), nil
}
