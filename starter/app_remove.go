package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tidewait/internal/render"
	"tidewait/internal/wadm"
)

func appUndeployCommand(c *cli) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "undeploy NAME | undeploy FILE | undeploy --all",
		Short: "Stop keeping an application running; its versions stay",
		Example: `  tidewait app undeploy hello
  tidewait app undeploy --all --lattice staging`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeAppsOrFiles,
	}
	cmd.Flags().BoolVar(&all, "all", false, "every deployed application of the lattice")
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) > 0) {
			return usage("give either an application or --all")
		}
		if all {
			return c.withApps(cmd, actor, func(ctx context.Context, a *apps) error { return a.undeployAll(ctx) })
		}
		t, err := c.targetOf(cmd.Context(), args)
		if err != nil {
			return err
		}
		return c.withApps(cmd, actor, func(ctx context.Context, a *apps) error {
			reply, err := a.undeploy(ctx, t.name)
			if err != nil {
				return err
			}
			return c.print(reply, time.Now(), func(render.Options) string { return render.Clean(reply.Message) + "\n" })
		})
	}
	return cmd
}

func (a *apps) undeploy(ctx context.Context, name string) (wadm.DeployReply, error) {
	reply, err := askApps(ctx, a, func(ctx context.Context) (wadm.DeployReply, error) { return a.client.Undeploy(ctx, name) })
	a.warn(reply.Warnings, nil)
	return reply, err
}

func (a *apps) undeployAll(ctx context.Context) error {
	return changeAll(ctx, a, "undeployed", "no application of lattice %s is deployed",
		func(s wadm.Summary) bool { return s.DeployedVersion != nil },
		func(ctx context.Context, name string) (wadm.DeployReply, string, error) {
			reply, err := a.undeploy(ctx, name)
			return reply, reply.Message, err
		})
}

func appDeleteCommand(c *cli) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "delete NAME [VERSION] | delete FILE | delete --all-undeployed",
		Short: "Delete a version of an application, or all of them",
		Long: `Delete a version of an application, or all of them when none is given; of a FILE,
the version it names. What was deployed of it is undeployed. What is not there is
no error.`,
		Example: `  tidewait app delete hello v1
  tidewait app delete --all-undeployed`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: c.completeAppsOrFiles,
	}
	cmd.Flags().BoolVar(&all, "all-undeployed", false, "every application of the lattice none of whose versions is deployed")
	actor := addActor(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) > 0) {
			return usage("give either an application or --all-undeployed")
		}
		if all {
			return c.withApps(cmd, actor, func(ctx context.Context, a *apps) error { return a.deleteUndeployed(ctx) })
		}
		t, err := c.targetOf(cmd.Context(), args)
		if err != nil {
			return err
		}
		return c.withApps(cmd, actor, func(ctx context.Context, a *apps) error {
			reply, err := a.delete(ctx, t)
			if err != nil {
				return err
			}
			return c.print(reply, time.Now(), func(render.Options) string { return render.Clean(reply.Message) + "\n" })
		})
	}
	return cmd
}

func (a *apps) delete(ctx context.Context, t appTarget) (wadm.DeleteReply, error) {
	reply, err := askApps(ctx, a, func(ctx context.Context) (wadm.DeleteReply, error) {
		return a.client.Delete(ctx, t.name, t.version)
	})
	a.warn(reply.Warnings, nil)
	return reply, err
}

// deletedApp is the reply to a delete, which alone does not say of what.
type deletedApp struct {
	Name string `json:"name"`
	wadm.DeleteReply
}

func (a *apps) deleteUndeployed(ctx context.Context) error {
	return changeAll(ctx, a, "deleted", "every application of lattice %s is deployed",
		func(s wadm.Summary) bool { return s.DeployedVersion == nil },
		func(ctx context.Context, name string) (deletedApp, string, error) {
			reply, err := a.delete(ctx, appTarget{name: name})
			return deletedApp{name, reply}, reply.Message, err
		})
}

// changeAll changes every application that is wanted, and goes on when one
// cannot be changed. done is the change's past participle, none what to say when
// no application is wanted. change returns its reply and the server's message.
func changeAll[Reply any](
	ctx context.Context, a *apps, done, none string,
	wanted func(wadm.Summary) bool, change func(context.Context, string) (Reply, string, error),
) error {
	list, err := askApps(ctx, a, a.client.List)
	if err != nil {
		return err
	}
	replies, text, asked := []Reply{}, "", 0
	var last error
	for _, s := range list {
		if ctx.Err() != nil || !wanted(s) {
			continue
		}
		asked++
		reply, message, err := change(ctx, s.Name)
		if err != nil {
			a.cli.note("tidewait: application %s is not %s: %v", s.Name, done, err)
			last = err
			continue
		}
		replies = append(replies, reply)
		text += render.Clean(message) + "\n"
	}
	if asked == 0 {
		text = fmt.Sprintf(none, a.lattice) + "\n"
	}
	err = a.cli.print(replies, time.Now(), func(render.Options) string { return text })
	if err == nil && last != nil {
		err = &fault{exitCode(last), fmt.Errorf("%d of %s not %s", asked-len(replies), counted(asked, "application"), done)}
	}
	return err
}
