package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/local"
	"tidewait/internal/natstest"
	"tidewait/internal/simhost"
	"tidewait/internal/tlstest"
	"tidewait/internal/wadm"
)

// guarded is a product on the NATS server of deploy/nats, with TLS, and on a Temporal
// that wants a certificate of everybody.
type guarded struct {
	t         *testing.T
	product   *local.Product
	dir       string
	authority *tlstest.Authority
	passwords map[string]string // by user
	address   string            // of NATS
	agent     *local.Worker     // of node-a
	log       *violations
}

// violations are what a NATS server did not allow.
type violations struct {
	mu    sync.Mutex
	lines []string
}

func (v *violations) keep(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	v.mu.Lock()
	defer v.mu.Unlock()
	if strings.Contains(line, "Violation") || strings.Contains(line, "authentication error") {
		v.lines = append(v.lines, line)
	}
}

func (v *violations) all() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string{}, v.lines...)
}

func (v *violations) Noticef(string, ...any)            {}
func (v *violations) Warnf(format string, args ...any)  { v.keep(format, args...) }
func (v *violations) Fatalf(format string, args ...any) { v.keep(format, args...) }
func (v *violations) Errorf(format string, args ...any) { v.keep(format, args...) }
func (v *violations) Debugf(string, ...any)             {}
func (v *violations) Tracef(string, ...any)             {}

var passwordVariable = regexp.MustCompile(`user: "?([\w.-]+)"?, password: \$(\w+)`)

// serveExample starts a NATS server with the shipped configuration.
func (g *guarded) serveExample() {
	g.t.Helper()
	dir := g.t.TempDir()
	example, err := os.ReadFile("../../deploy/nats/nats-server.conf")
	require.NoError(g.t, err)
	var passwords strings.Builder
	g.passwords = map[string]string{}
	for _, found := range passwordVariable.FindAllStringSubmatch(string(example), -1) {
		g.passwords[found[1]] = rand.Text()
		fmt.Fprintf(&passwords, "%s: %q\n", found[2], g.passwords[found[1]])
	}
	require.Len(g.t, g.passwords, 11)
	pair := g.authority.Server(g.t)
	text := strings.NewReplacer("./tls/server.pem", pair.Cert, "./tls/server-key.pem", pair.Key).Replace(string(example))
	require.NoError(g.t, os.WriteFile(filepath.Join(dir, "passwords.conf"), []byte(passwords.String()), 0o600))
	require.NoError(g.t, os.WriteFile(filepath.Join(dir, "nats-server.conf"), []byte(text), 0o600))
	options, err := server.ProcessConfigFile(filepath.Join(dir, "nats-server.conf"))
	require.NoError(g.t, err)
	options.Port, options.StoreDir, options.MaxPayload = server.RANDOM_PORT, filepath.Join(dir, "jetstream"), 8<<20
	s := natstest.Start(g.t, options)
	g.log = &violations{}
	s.SetLogger(g.log, false, false)
	g.address = s.Addr().String()
}

func (g *guarded) url(user string) string {
	password, known := g.passwords[user]
	require.True(g.t, known, user)
	return "tls://" + user + ":" + password + "@" + g.address
}

// as are the settings of a process that is a user of NATS, and has a certificate for
// Temporal.
func (g *guarded) as(user string) []string {
	return append(g.reading(user), "TIDEWAIT_TEMPORAL_CONFIG_FILE="+filepath.Join(g.dir, "temporal.toml"))
}

// reading is without the certificate.
func (g *guarded) reading(user string) []string {
	return []string{
		"TIDEWAIT_NATS_URL=" + g.url(user), "TIDEWAIT_NATS_CA=" + g.authority.File, "TIDEWAIT_NATS_INBOX_PREFIX=_INBOX." + user,
		"TIDEWAIT_TEMPORAL_ADDRESS=",
	}
}

func startGuarded(t *testing.T) *guarded {
	t.Helper()
	stacks.take(t)
	g := &guarded{t: t, dir: devstacktest.Dir(t), authority: tlstest.NewAuthority(t, "ours")}
	g.serveExample()
	secrets := filepath.Join(g.dir, "secrets")
	require.NoError(t, os.Mkdir(secrets, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(secrets, "token"), []byte("correct horse"), 0o600))
	var err error
	g.product, err = local.Start(t.Context(), local.Options{
		Worker: filepath.Join(bin, "tidewait-worker"), Patience: 5 * time.Minute,
		Env: slices.Concat([]string{"TIDEWAIT_DATA_DIR=" + g.dir}, quick, roomy, g.reading("setup")),
		Stack: devstack.Options{
			Dir: filepath.Join(g.dir, "stack"), TemporalCLI: devstacktest.TemporalCLI(t), Services: []devstack.Name{devstack.Postgres, devstack.Temporal},
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			(&product{t: t, dir: g.dir}).printLogs()
		}
		require.NoError(t, g.product.Stop())
	})
	relay := tlstest.Relay(t, g.authority.Config(t, g.authority.Server(t), true), g.product.Stack.TemporalAddress)
	client := g.authority.Client(t, "tidewait")
	require.NoError(t, os.WriteFile(filepath.Join(g.dir, "temporal.toml"), fmt.Appendf(nil,
		"[profile.default]\naddress = %q\nnamespace = \"default\"\n[profile.default.tls]\nclient_cert_path = %q\nclient_key_path = %q\nserver_ca_cert_path = %q\n",
		relay, client.Cert, client.Key, g.authority.File), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(g.dir, "reader.toml"), fmt.Appendf(nil,
		"[profile.default]\naddress = %q\nnamespace = \"default\"\n[profile.default.tls]\nserver_ca_cert_path = %q\n", relay, g.authority.File), 0o600))

	_, errs, code := g.tidewait(g.as("setup"), "setup", "--node", "node-a,node-b")
	require.Zero(t, code, errs)
	g.worker("engine", "engine", "engine", "TIDEWAIT_WADM_URLS=default="+g.url("observer.default"))
	g.worker("gateway", "gateway", "gateway.gateway-a", "TIDEWAIT_GATEWAY_ID=gateway-a", "TIDEWAIT_GATEWAY_SECRET_DIR="+secrets)
	g.agent = g.worker("n1", "node", "node.node-a", "TIDEWAIT_NODE_ID=node-a", "TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_NODE_CPUS=2",
		"TIDEWAIT_NODE_MEMORY=600Mi", "TIDEWAIT_NODE_DISK=4Gi", "TIDEWAIT_NODE_PROBE_TIMEOUT=4m", "TIDEWAIT_NODE_KEEP_RUNS=true")
	return g
}

func (g *guarded) worker(name, role, user string, env ...string) *local.Worker {
	g.t.Helper()
	w, err := g.product.StartWorker(g.t.Context(), name, []string{role}, append(g.as(user), env...)...)
	require.NoError(g.t, err)
	return w
}

// tidewait runs the CLI with these settings.
func (g *guarded) tidewait(env []string, args ...string) (stdout, stderr string, code int) {
	g.t.Helper()
	cmd := exec.CommandContext(g.t.Context(), filepath.Join(bin, "tidewait"), args...)
	cmd.Env = append(append(os.Environ(), g.product.Env()...), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		require.NoError(g.t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func (g *guarded) must(user string, args ...string) string {
	g.t.Helper()
	env := g.as(user)
	if user == "reader" {
		env = append(g.reading(user), "TIDEWAIT_TEMPORAL_CONFIG_FILE="+filepath.Join(g.dir, "reader.toml"))
	}
	out, errs, code := g.tidewait(env, args...)
	require.Zerof(g.t, code, "%s: tidewait %s: %s%s", user, strings.Join(args, " "), out, errs)
	return out
}

// connect connects as a user.
func (g *guarded) connect(user string) (nc *nats.Conn, refused chan error) {
	g.t.Helper()
	refused = make(chan error, 100)
	nc, err := nats.Connect(g.url(user), nats.RootCAs(g.authority.File), nats.CustomInboxPrefix("_INBOX."+user),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	require.NoError(g.t, err)
	g.t.Cleanup(nc.Close)
	return nc, refused
}

// TestEachRoleUnderItsPermissions lets the product do all it does on the shipped
// configuration of NATS, of which nobody oversteps anything, and then each role try what
// is none of its business.
func TestEachRoleUnderItsPermissions(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	g.missionAndLogs()
	g.agentRestarts()
	g.application()
	require.Empty(t, g.log.all(), "what NATS did not allow")

	g.overstep()
	g.readerChangesNothing()
	g.accountsAreApart()
	g.noPasswordIsLogged()
}

func (g *guarded) missionAndLogs() {
	g.t.Helper()
	p := &product{t: g.t, dir: g.dir}
	doc := missionDoc{name: "m", phases: []phaseDoc{
		{name: "first", script: `test "$TOKEN" = "correct horse" && echo hello && echo one > made`, extra: "secrets: [{name: TOKEN, from: file:token}]"},
		{name: "second", script: "cat made >> also && test -s also"},
	}}
	g.must("operator", "mission", "launch", "--follow", p.write(doc))
	require.Equal(g.t, "first | hello\n", g.must("reader", "mission", "logs", "m"))
	require.Contains(g.t, g.must("reader", "mission", "show", "m"), "succeeded")
	require.Contains(g.t, g.must("reader", "mission", "results", "m"), "tidewait/m/1")
	home := g.t.TempDir()
	require.NoError(g.t, exec.Command("git", "init", "-q", home).Run())
	g.must("reader", "mission", "results", "m", "--into", home)
	made, err := exec.Command("git", "-C", home, "show", "tidewait/m/1:also").Output()
	require.NoError(g.t, err)
	require.Equal(g.t, "one\n", string(made))
	for _, list := range [][]string{{"mission", "list"}, {"node", "list"}, {"node", "show", "node-a"}, {"waits"}, {"lattice", "list"}, {"app", "list"}} {
		g.must("reader", list...)
	}
	g.must("operator", "node", "cordon", "node-a", "--reason", "test")
	g.must("operator", "node", "uncordon", "node-a")
	g.must("operator", "mission", "rerun", "m", "--from", "second", "--wait")
}

// agentRestarts lets another agent go on with a run and its log.
func (g *guarded) agentRestarts() {
	g.t.Helper()
	p := &product{t: g.t, dir: g.dir}
	g.must("operator", "mission", "launch", p.write(missionDoc{name: "long", phases: []phaseDoc{
		{name: "work", script: "echo begun; sleep 4; echo over"},
	}}))
	p.eventually("the command has begun", func() bool { return g.must("reader", "mission", "logs", "long") == "work | begun\n" }, func() any { return nil })
	require.NoError(g.t, g.agent.Kill())
	require.NoError(g.t, g.agent.Start(g.t.Context()))
	p.eventually("the mission succeeds", func() bool {
		return strings.Contains(g.must("reader", "mission", "show", "long"), "succeeded")
	}, func() any { return g.must("reader", "mission", "show", "long") })
	log := g.must("reader", "mission", "logs", "long")
	require.Equal(g.t, 1, strings.Count(log, "begun"), log)
	require.Contains(g.t, log, "work | over\n")
}

func (g *guarded) application() {
	g.t.Helper()
	hosts, _ := g.connect("host.default")
	lattice := simhost.NewLattice(hosts, simhost.Options{Lattice: "default"})
	g.t.Cleanup(lattice.Close)
	_, err := lattice.Start(g.t.Context(), simhost.HostSpec{Name: "one"})
	require.NoError(g.t, err)
	g.must("operator", "app", "deploy", filepath.Join(exampleApps(g.t), "hello.yaml"), "--wait")
	require.Contains(g.t, g.must("reader", "app", "status", "hello"), "deployed")
	require.Contains(g.t, g.must("reader", "app", "get", "hello"), "greeter")
	require.Contains(g.t, g.must("reader", "lattice", "show"), "one")

	// What wash does, from the lattice's own account.
	wash, err := nats.Connect(g.url("wadm.default"), nats.RootCAs(g.authority.File))
	require.NoError(g.t, err)
	g.t.Cleanup(wash.Close)
	news, err := wash.SubscribeSync("wadm.status.default.hello")
	require.NoError(g.t, err)
	require.NoError(g.t, wash.Flush())
	client := wadm.Client{Conn: wash}
	status, err := client.Status(g.t.Context(), "hello")
	require.NoError(g.t, err)
	require.Equal(g.t, wadm.Deployed, status.Status.Status.Type)
	_, err = client.Undeploy(g.t.Context(), "hello")
	require.NoError(g.t, err)
	_, err = news.NextMsg(patience)
	require.NoError(g.t, err)
}

// overstep lets users publish and subscribe to what is others'.
func (g *guarded) overstep() {
	g.t.Helper()
	for user, tries := range map[string]struct{ publish, subscribe []string }{
		"node.node-a": {
			publish: []string{
				"tidewait.agent.node.node-b", "tidewait.agent.gateway.gateway-a", "tidewait.log.node-b.m.1.first.r1-1", "tidewait.secrets.run.node-b",
				"tidewait.secrets.seal.gateway-a", "tidewait.api.node.cordon", "tidewait.api.mission.list", "wadm.api.default.model.put",
				"$O.tidewait-results-node-b.M.x", "$O.tidewait-workspaces.M.x", "$O.tidewait-bundles.M.x",
				"$JS.API.STREAM.DELETE.OBJ_tidewait-results-node-a", "$JS.API.STREAM.DELETE.TIDEWAIT_LOGS", "$JS.API.STREAM.CREATE.MINE",
				"$JS.API.STREAM.UPDATE.OBJ_tidewait-results-node-a", "$JS.API.STREAM.PURGE.TIDEWAIT_LOGS", "$JS.API.STREAM.MSG.GET.TIDEWAIT_LOGS",
				"$JS.API.DIRECT.GET.TIDEWAIT_LOGS.tidewait.log.node-b.m.1.first.r1-1", "$JS.API.CONSUMER.CREATE.TIDEWAIT_LOGS.mine",
				"$JS.API.CONSUMER.CREATE.OBJ_tidewait-results-node-b.mine", "$JS.API.CONSUMER.CREATE.OBJ_tidewait-workspaces.mine",
				"wasmbus.ctl.v1.default.host.stop.x", "_INBOX.engine.x", "$SYS.REQ.SERVER.PING",
			},
			subscribe: []string{"tidewait.>", "tidewait.agent.node.node-a", "tidewait.log.node-b.>", "_INBOX.>", "_INBOX.node.node-b.>", "$O.>", "wadm.>", ">"},
		},
		"gateway.gateway-a": {
			publish: []string{
				"tidewait.agent.node.node-a", "tidewait.agent.gateway.gateway-b", "tidewait.secrets.run.node-a", "tidewait.api.node.cordon", "wadm.api.default.model.put",
				"tidewait.log.node-a.m.1.first.r1-1", "$O.tidewait-results-node-a.M.x", "$JS.API.STREAM.DELETE.OBJ_tidewait-bundles",
				"$JS.API.CONSUMER.CREATE.TIDEWAIT_LOGS.mine", "$JS.API.STREAM.CREATE.MINE",
			},
			subscribe: []string{"tidewait.agent.>", "tidewait.gateway.gateway-b.log", "tidewait.secrets.seal.gateway-b", "tidewait.secrets.run.*", "_INBOX.>"},
		},
		"engine": {
			publish: []string{
				"$JS.API.STREAM.DELETE.TIDEWAIT_LOGS", "$JS.API.CONSUMER.CREATE.OBJ_tidewait-workspaces.mine", "$O.tidewait-bundles.M.x",
				"tidewait.log.node-a.m.1.first.r1-1", "wasmbus.ctl.v1.default.host.stop.x", "tidewait.agent.node.node-a",
			},
			subscribe: []string{"tidewait.secrets.seal.gateway-a", "tidewait.log.>", "_INBOX.>", "$O.>"},
		},
		"reader": {
			publish: []string{
				"tidewait.api.node.cordon", "tidewait.api.node.retire", "tidewait.api.app.import", "wadm.api.default.model.put", "wadm.api.default.model.deploy.hello",
				"wadm.api.default.model.undeploy.hello", "wadm.api.default.model.del.hello", "$O.tidewait-workspaces.M.x", "tidewait.agent.node.node-a",
				"$JS.API.STREAM.PURGE.TIDEWAIT_LOGS", "$JS.API.STREAM.DELETE.TIDEWAIT_LOGS", "$JS.API.STREAM.CREATE.MINE", "tidewait.secrets.run.node-a",
			},
			subscribe: []string{"tidewait.>", "_INBOX.>", "_INBOX.operator.>"},
		},
		"operator": {
			publish: []string{
				"tidewait.agent.node.node-a", "tidewait.secrets.run.node-a", "tidewait.secrets.seal.gateway-a", "tidewait.log.node-a.m.1.first.r1-1",
				"$JS.API.STREAM.DELETE.TIDEWAIT_LOGS", "$JS.API.STREAM.CREATE.MINE", "$O.tidewait-bundles.M.x", "wasmbus.ctl.v1.default.host.stop.x",
			},
			subscribe: []string{"tidewait.api.>", "_INBOX.>"},
		},
		"observer.default": {publish: []string{"wadm.api.default.model.put", "wasmbus.evt.default.x", "$JS.API.STREAM.LIST"}, subscribe: []string{"wasmbus.ctl.v1.default.>", "_INBOX.>"}},
		"wadm.default":     {publish: []string{"wadm.api.other.model.put", "tidewait.api.mission.list", "wasmbus.evt.default.x", "$JS.API.STREAM.LIST"}, subscribe: []string{">", "wadm.status.other.x"}},
	} {
		nc, refused := g.connect(user)
		for _, subject := range tries.publish {
			require.NoError(g.t, nc.Publish(subject, nil))
			g.refuses(refused, user+" publishes to "+subject, fmt.Sprintf("Permissions Violation for Publish to %q", subject))
		}
		for _, subject := range tries.subscribe {
			_, err := nc.SubscribeSync(subject)
			require.NoError(g.t, err)
			g.refuses(refused, user+" subscribes to "+subject, fmt.Sprintf("Permissions Violation for Subscription to %q", subject))
		}
	}
}

func (g *guarded) refuses(refused <-chan error, what, want string) {
	g.t.Helper()
	select {
	case err := <-refused:
		require.ErrorIs(g.t, err, nats.ErrPermissionViolation, what)
		require.ErrorContains(g.t, err, want, what)
	case <-time.After(patience):
		g.t.Fatalf("nobody refuses: %s", what)
	}
}

// readerChangesNothing tries the command line of who may only look.
func (g *guarded) readerChangesNothing() {
	g.t.Helper()
	env := append(g.reading("reader"), "TIDEWAIT_TEMPORAL_CONFIG_FILE="+filepath.Join(g.dir, "reader.toml"))
	where := "tls://" + g.address
	for _, try := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"node", "cordon", "node-a", "--reason", "x"}, "tidewait: NATS on " + where + ` does not allow this: nats: permissions violation: Permissions Violation for Publish to "tidewait.api.node.cordon"`, 1},
		{[]string{"app", "put", filepath.Join(exampleApps(g.t), "hello.yaml")}, "tidewait: NATS on " + where + ` does not allow this: nats: permissions violation: Permissions Violation for Publish to "wadm.api.default.model.put"`, 1},
		{[]string{"phase", "nudge", "m", "first"}, "; the server closes the connection: it may want TLS, or a certificate of one of its authorities in tls.client_cert_path (profile default of " + filepath.Join(g.dir, "reader.toml") + ")", 5},
	} {
		out, errs, code := g.tidewait(env, try.args...)
		require.Equal(g.t, try.code, code, errs)
		require.Empty(g.t, out)
		require.Contains(g.t, errs, try.want)
		require.NotContains(g.t, errs, g.passwords["reader"])
	}
}

// accountsAreApart looks from the account of a lattice, whose hosts may do all in it.
func (g *guarded) accountsAreApart() {
	g.t.Helper()
	host, _ := g.connect("host.default")
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	for _, subject := range []string{"tidewait.api.mission.list", "tidewait.agent.node.node-a", "wadm.api.other.model.list"} {
		_, err := host.RequestWithContext(ctx, subject, []byte("{}"))
		require.ErrorIs(g.t, err, nats.ErrNoResponders, subject)
	}
	js, err := host.JetStream()
	require.NoError(g.t, err)
	_, err = js.StreamInfo("TIDEWAIT_LOGS")
	require.ErrorIs(g.t, err, nats.ErrStreamNotFound)
	all, err := host.SubscribeSync("tidewait.>")
	require.NoError(g.t, err)
	require.NoError(g.t, host.Flush())
	g.must("operator", "mission", "rerun", "m", "--from", "second", "--wait")
	pending, _, err := all.Pending()
	require.NoError(g.t, err)
	require.Zero(g.t, pending, "what the product says in its own account")
}

func (g *guarded) noPasswordIsLogged() {
	g.t.Helper()
	logs, err := filepath.Glob(filepath.Join(g.dir, "stack", "logs", "*"))
	require.NoError(g.t, err)
	require.GreaterOrEqual(g.t, len(logs), 5)
	for _, path := range logs {
		text, err := os.ReadFile(path)
		require.NoError(g.t, err)
		for user, password := range g.passwords {
			require.NotContains(g.t, string(text), password, "the password of %s in %s", user, path)
		}
		require.NotContains(g.t, string(text), "permissions violation", path)
	}
}
