package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tidewait/internal/render"
)

func appValidateCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check application documents without putting anything",
		Long: `Check application documents without putting anything and without any service.
A FILE may be an http(s) URL, or - for standard input. Each finding is one line:
file:line:column: level: path: message [rule]. Warnings alone do not fail.`,
		Example: `  tidewait app validate hello.yaml
  tidewait app get hello v1 | tidewait app validate -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.validateApps(cmd.Context(), args) },
	}
}

func (c *cli) validateApps(ctx context.Context, sources []string) error {
	findings, text, wrong := []appFinding{}, "", 0
	for _, source := range sources {
		d, err := c.readApp(ctx, source)
		if err != nil {
			return err
		}
		findings = append(findings, d.findings...)
		text += verdictText(d)
		if d.errorCount() > 0 {
			wrong++
		}
	}
	err := c.print(findings, time.Time{}, func(render.Options) string { return text })
	if err == nil && wrong > 0 {
		err = usage("%s", notValid(wrong))
	}
	return err
}

func notValid(documents int) string {
	if documents == 1 {
		return "1 document is not valid"
	}
	return fmt.Sprintf("%d documents are not valid", documents)
}

func verdictText(d appDocument) string {
	text := ""
	for _, f := range d.findings {
		text += f.String() + "\n"
	}
	if d.errorCount() > 0 {
		return text
	}
	text += fmt.Sprintf("%s: application %s is valid, %s", d.shown, render.Clean(d.manifest.Metadata.Name),
		counted(len(d.manifest.Spec.Components), "component"))
	if n := len(d.findings); n > 0 {
		text += ", " + counted(n, "warning")
	}
	return text + "\n"
}
