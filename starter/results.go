package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tidewait/internal/api"
	"tidewait/internal/objects"
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

// resultsOf answers from the gateway that holds a launch, and when that does not, from
// what it has kept.
func (c *cli) resultsOf(ctx context.Context, e *engine, detail api.MissionDetail, o resultsOptions) error {
	err := c.resultsFrom(ctx, holder{e, detail.Gateway, detail.Name, detail.Launch}, detail.Name, o)
	if away := new(noAnswer); ctx.Err() != nil || !errors.As(err, &away) {
		return err
	}
	kept, done, keptErr := e.kept(ctx, detail.Name, detail.Launch)
	switch {
	case keptErr != nil:
		return unreachable("%w; and what it has kept in the object store cannot be read: %w", err, keptErr)
	case kept == nil:
		return err
	}
	defer done()
	c.note("%s", kept.said())
	return c.resultsFrom(ctx, kept, detail.Name, o)
}

func (c *cli) resultsFrom(ctx context.Context, from source, name string, o resultsOptions) error {
	if o.into != "" {
		return c.bringHome(ctx, from, o)
	}
	if o.export != "" {
		return c.export(ctx, from, o.phase, o.export)
	}
	results, err := from.log(ctx)
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
		return c.diffs(ctx, from, results, o.stat)
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
func (c *cli) diffs(ctx context.Context, from source, results api.Results, stat bool) error {
	diffs := make([]api.Diff, len(results.Commits))
	for i, commit := range results.Commits {
		var err error
		if diffs[i], err = from.diff(ctx, commit.Phase, stat); err != nil {
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
func (c *cli) bringHome(ctx context.Context, from source, o resultsOptions) error {
	dir := o.into
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usage("--into %s is not a directory; name a git repository", dir)
	}
	path, branch, err := from.bundle(ctx, o.partial)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	commit, err := workspace.FetchInto(ctx, dir, path, branch)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return failed("cannot fetch branch %s into %s: %w", branch, dir, err)
	}
	report := fetched{Into: dir, Branch: branch, Commit: commit, Pushed: o.push}
	if o.push != "" {
		err := workspace.Push(ctx, dir, o.push, branch)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return failed("branch %s is in %s, but was not pushed: %w", branch, dir, err)
		}
	}
	return c.print(report, time.Now(), func(render.Options) string {
		text := fmt.Sprintf("branch %s is now in %s at %s; see it with: git -C %s log %s\n", branch, dir, commit, dir, branch)
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
	object := objects.Open(ctx, e.conn, store, name)
	defer object.Close()
	digest := sha256.New()
	path, err = temporary(func(w io.Writer) error {
		_, err := io.Copy(io.MultiWriter(w, digest), object)
		return err
	})
	switch got := hex.EncodeToString(digest.Sum(nil)); {
	case err != nil && ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, jetstream.ErrObjectNotFound):
		return "", failed("cannot get the object %s from %s: %w", name, bucket, err)
	case err != nil:
		return "", failed("the object %s did not arrive whole: %w", name, err)
	case got != sum:
		os.Remove(path)
		return "", failed("the object %s has the digest %s, not %s; nothing was taken from it", name, got, sum)
	}
	return path, nil
}
