package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"tidewait/internal/render"
	"tidewait/internal/workspace"
)

// exported is the structured output of `mission results --export DIR`.
type exported struct {
	Export string `json:"export"`
	Commit string `json:"commit"`
	Files  int    `json:"files"` // regular files and symbolic links
	Bytes  int64  `json:"bytes"`
}

// export writes the files of a commit into a directory, or as a tar to standard
// output.
func (c *cli) export(ctx context.Context, from source, phase, dir string) error {
	path, commit, err := from.archive(ctx, phase)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot read the files of the commit: %w", err)
	}
	defer file.Close()
	if dir == "-" {
		_, err := io.Copy(c.out, file)
		return err
	}
	counts, err := workspace.Unpack(file, dir)
	if err != nil {
		return failed("nothing was exported: %w", err)
	}
	report := exported{Export: dir, Commit: commit, Files: counts.Files, Bytes: counts.Bytes}
	return c.print(report, time.Now(), func(render.Options) string {
		return fmt.Sprintf("%d files of commit %.12s are in %s\n", counts.Files, commit, dir)
	})
}
