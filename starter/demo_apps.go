package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tidewait/examples"
	"tidewait/internal/local"
	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
)

// What the demo does to the example application: another version of it names an
// image that the registry does not have.
const (
	demoApp     = "hello"
	demoBroken  = "v2"
	demoMissing = "ghcr.io/wasmcloud/components/http-hello-world-rust:0.1.0-typo"
)

// applications shows an application that waits for hosts, gets them, fails in
// the open and is mended. The hosts are simulated; everything else is real.
func (d *demo) applications(ctx context.Context) error {
	if err := d.writeApps(); err != nil {
		return err
	}
	d.say("deploying application %s into a lattice that nobody has seen a host of", demoApp)
	if err := d.show(ctx, "app", "deploy", d.app(demoApp)); err != nil {
		return err
	}
	if err := d.awaitStatus(ctx, wadm.Waiting); err != nil {
		return err
	}
	if err := d.show(ctx, "waits", "--kind", "lattice"); err != nil {
		return err
	}
	d.say("a simulated host joins the lattice")
	hosts, err := d.product.SimulateHosts(ctx, 1)
	if err != nil {
		return failed("%w", err)
	}
	defer hosts.Stop()
	if err := d.awaitStatus(ctx, wadm.Deployed); err != nil {
		return err
	}
	for _, args := range [][]string{{"app", "status", demoApp}, {"lattice", "show"}} {
		if err := d.show(ctx, args...); err != nil {
			return err
		}
	}
	return d.failAndMend(ctx, hosts)
}

// failAndMend deploys a version whose image is not there, shows how it fails,
// and goes back to the one before.
func (d *demo) failAndMend(ctx context.Context, hosts *local.Hosts) error {
	hosts.Lattice.Script(simhost.Rule{Image: demoMissing, Fetch: simhost.ManifestUnknown})
	d.say("deploying a version with an image that its registry does not have")
	if err := d.show(ctx, "app", "deploy", d.app(demoBroken)); err != nil {
		return err
	}
	const attempts = 4
	if err := d.awaitApp(ctx, fmt.Sprintf("it has failed %d times", attempts), func(s wadm.Status) bool {
		return s.Status.Type == wadm.Failed && s.Status.Attempt >= attempts
	}); err != nil {
		return err
	}
	for _, args := range [][]string{{"app", "status", demoApp}, {"waits", "--kind", "backoff"}} {
		if err := d.show(ctx, args...); err != nil {
			return err
		}
	}
	d.say("it was tried %s", spacing(tries(hosts.Lattice)))
	d.say("deploying the version before")
	if err := d.show(ctx, "app", "deploy", demoApp, "v1", "--wait"); err != nil {
		return err
	}
	return d.show(ctx, "app", "undeploy", demoApp)
}

// tries are the times at which the host was told to run the missing image.
func tries(l *simhost.Lattice) []time.Time {
	var times []time.Time
	for _, c := range l.Calls() {
		if c.Image == demoMissing {
			times = append(times, c.Time)
		}
	}
	return times
}

func spacing(times []time.Time) string {
	if len(times) < 2 {
		return "once"
	}
	gaps := make([]string, len(times)-1)
	for i := range gaps {
		gaps[i] = fmt.Sprintf("%.1f s", times[i+1].Sub(times[i]).Seconds())
	}
	return fmt.Sprintf("%d times, after pauses of %s", len(times), strings.Join(gaps, ", "))
}

// writeApps writes the example and its broken version.
func (d *demo) writeApps() error {
	files, err := fs.Sub(examples.Apps, "apps")
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(d.dir, "apps"), files); err != nil {
		return failed("%w", err)
	}
	text, err := os.ReadFile(d.app(demoApp))
	if err != nil {
		return failed("%w", err)
	}
	broken := strings.Replace(string(text), "version: v1", "version: "+demoBroken, 1)
	broken = strings.Replace(broken, strings.TrimSuffix(demoMissing, "-typo"), demoMissing, 1)
	if !strings.Contains(broken, demoMissing) || !strings.Contains(broken, "version: "+demoBroken) {
		return failed("the example %s is not what the demo expects", demoApp)
	}
	return os.WriteFile(d.app(demoBroken), []byte(broken), 0o600)
}

func (d *demo) app(name string) string { return filepath.Join(d.dir, "apps", name+".yaml") }

func (d *demo) awaitStatus(ctx context.Context, t wadm.StatusType) error {
	return d.awaitApp(ctx, "it is "+string(t), func(s wadm.Status) bool { return s.Status.Type == t })
}

// awaitApp asks for the demo's application until it is as wanted.
func (d *demo) awaitApp(ctx context.Context, what string, wanted func(wadm.Status) bool) error {
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	client := wadm.Client{Conn: d.engine.conn, Prefix: d.settings.Wadm.APIPrefix, Lattice: d.settings.Wadm.Lattice}
	for {
		reply, err := client.Status(ctx, demoApp)
		switch {
		case err != nil:
			return failed("%w", err)
		case wanted(*reply.Status):
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			seen, _ := json.Marshal(reply.Status.Status)
			return failed("application %s: still not so after %s: %s; it is %s", demoApp, patience, what, seen)
		}
	}
}
