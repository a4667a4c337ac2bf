package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tidewait/config"
	"tidewait/internal/render"
)

// cli is what every command shares: its streams and its global flags.
type cli struct {
	in        io.Reader
	out, errs io.Writer

	format     string // table, json or yaml
	configFile string
	began      bool // the command line was understood
}

// load reads the settings with the flags of cmd over them.
func (c *cli) load(cmd *cobra.Command) (config.Settings, error) {
	settings, err := config.Load(config.Options{File: c.configFile, Flags: cmd.Flags(), FlagKeys: shortFlags})
	if err != nil {
		return config.Settings{}, &fault{exitUsage, err}
	}
	return settings, nil
}

// log is where connections report: a person at a terminal needs the troubles only.
func (c *cli) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(c.errs, &slog.HandlerOptions{Level: slog.LevelError}))
}

// note tells a person something beside the command's output.
func (c *cli) note(format string, args ...any) { fmt.Fprintf(c.errs, format+"\n", args...) }

// terminal returns the width of the output when it is a terminal, else 0.
func (c *cli) terminal() (width int) {
	file, ok := c.out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	width, _ = terminalSize(file)
	return width
}

// view returns how text is made for this output at the given moment.
func (c *cli) view(now time.Time) render.Options {
	o := render.Options{Now: now, Width: c.terminal()}
	if o.Width > 0 {
		file, _ := c.out.(*os.File)
		_, rows := terminalSize(file)
		o.Height = rows - 1 // the cursor has the last one
		o.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return o
}

// addActor gives cmd the flag --actor and returns its value.
func addActor(cmd *cobra.Command) *string {
	return cmd.Flags().String("actor", defaultActor(), "who does this")
}

// defaultActor is $USER, or the name of the process's user, at this host.
func defaultActor() string {
	name := os.Getenv("USER")
	if name == "" {
		name = fmt.Sprintf("uid-%d", os.Getuid())
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}
