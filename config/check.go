package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidewait/internal/quantity"
)

// longest bounds every duration, so that sums of a few never overflow.
const longest = 8760 * time.Hour

// idPattern is what fits a NATS subject token and a bucket name as it is.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// Tokens of NATS subjects, without wildcards.
var (
	tokenPattern   = regexp.MustCompile(`^[^\s.*>]+$`)
	inboxPattern   = regexp.MustCompile(`^_[^\s.*>]*(\.[^\s.*>]+)*$`)
	subjectPattern = regexp.MustCompile(`^[^\s.*>]+(\.[^\s.*>]+)*$`)
)

// check refuses values that cannot work, alone or together. It is silent about
// keys that have a fault already.
func check(s *Settings, winning map[string]setting, earlier Faults) Faults {
	c := checker{settings: s, winning: winning, refused: map[string]bool{}}
	for _, fault := range earlier {
		c.refused[fault.Key] = true
	}
	c.connections()
	c.encryption()
	c.fleet()
	c.node()
	c.gateway()
	c.wadm()
	return c.faults
}

type checker struct {
	settings *Settings
	winning  map[string]setting
	refused  map[string]bool
	faults   Faults
}

// want refuses the first key unless ok. The other keys took part in the
// comparison: when one of them is refused already, nothing can be said.
func (c *checker) want(ok bool, want string, names ...string) {
	if ok || slices.ContainsFunc(names, func(name string) bool { return c.refused[name] }) {
		return
	}
	name := names[0]
	c.refused[name] = true
	from := c.winning[name]
	c.faults = append(c.faults, Fault{Key: name, Value: shown(name, from.text), Origin: from.origin, Want: "want " + want})
}

func (c *checker) connections() {
	s := c.settings
	c.want(s.DataDir != "", "the path of a directory", "data_dir")
	c.oneOf("log.level", s.Log.Level, "debug", "info", "warn", "error")
	c.oneOf("log.format", s.Log.Format, "text", "json")
	c.want(s.Telemetry.Address == "" || isListenAddress(s.Telemetry.Address), "host:port, such as 127.0.0.1:9464, or nothing", "telemetry.address")
	c.positive("telemetry.stuck_after", s.Telemetry.StuckAfter)
	c.want(s.Temporal.Address == "" || isHostPort(s.Temporal.Address), "host:port, such as 127.0.0.1:7233", "temporal.address")
	c.between("temporal.retention", s.Temporal.Retention, time.Hour)
	c.want(isServerList(s.NATS.URL), "nats://host:port, tls://host:port, ws:// or wss://, several separated by commas", "nats.url")
	c.want(s.NATS.Key == "" || s.NATS.Cert != "", "nats.cert beside it: a key needs its certificate", "nats.key", "nats.cert")
	c.want(s.NATS.Cert == "" || s.NATS.Key != "", "nats.key beside it: a certificate needs its key", "nats.cert", "nats.key")
	c.want(s.NATS.InboxPrefix == "" || inboxPattern.MatchString(s.NATS.InboxPrefix), "tokens of a NATS subject that begin with _, such as _INBOX.engine", "nats.inbox_prefix")
	c.want(isURL(s.Postgres.URL, "postgres", "postgresql"), "postgres://user:password@host:port/database", "postgres.url")
	c.atLeast("postgres.max_conns", int64(s.Postgres.MaxConns), 1)
	c.want(s.Dev.Nodes >= 0 && s.Dev.Nodes <= 16, "0 to 16", "dev.nodes")
	c.want(s.Dev.SimulatedHosts >= 0 && s.Dev.SimulatedHosts <= 200, "0 to 200", "dev.simulated_hosts")
}

func (c *checker) fleet() {
	f := c.settings.Fleet
	c.positive("fleet.turn", f.Turn)
	c.positive("fleet.retry_interval", f.RetryInterval)
	c.positive("fleet.attempt_backoff", f.AttemptBackoff)
	c.positive("fleet.heartbeat_interval", f.HeartbeatInterval)
	c.positive("fleet.suspect_after", f.SuspectAfter)
	c.positive("fleet.lease", f.Lease)
	c.positive("fleet.lost_after", f.LostAfter)
	c.positive("fleet.sweep_interval", f.SweepInterval)
	c.positive("fleet.object_ttl", f.ObjectTTL)
	c.want(f.BundleBytes == 0 || f.BundleBytes >= 1<<20, "0, which means as many as NATS gives the account, or at least 1048576", "fleet.bundle_bytes")
	c.between("fleet.run_ttl", f.RunTTL, 0)
	c.between("fleet.wait_ttl", f.WaitTTL, 0)
	c.between("fleet.result_ttl", f.ResultTTL, 0)
	c.positive("fleet.log_ttl", f.LogTTL)
	c.atLeast("fleet.log_bytes", f.LogBytes, 1<<20)
	c.want(f.StreamReplicas >= 1 && f.StreamReplicas <= 5, "1 to 5", "fleet.stream_replicas")
	c.want(f.Priority >= 0 && f.Priority <= 100, "0 to 100", "fleet.priority")
	c.positive("fleet.ageing", f.Ageing)
	c.atLeast("fleet.head_window", int64(f.HeadWindow), 1)

	c.want(f.MaxWait >= 0 && (f.MaxWait <= f.Turn || f.MaxWait-f.Turn <= f.Turn),
		fmt.Sprintf("0, which means two turns, or at most two turns; fleet.turn is %s", short(f.Turn)),
		"fleet.max_wait", "fleet.turn")
	c.want(f.HeartbeatInterval <= f.SuspectAfter/2,
		fmt.Sprintf("at most half of fleet.suspect_after, which is %s", short(f.SuspectAfter)),
		"fleet.heartbeat_interval", "fleet.suspect_after")
	c.want(f.SuspectAfter < f.Lease,
		fmt.Sprintf("less than fleet.lease, which is %s", short(f.Lease)),
		"fleet.suspect_after", "fleet.lease")
	grace := c.settings.Node.KillGrace
	c.want(f.Lease < f.LostAfter-grace,
		fmt.Sprintf("less than fleet.lost_after minus node.kill_grace, which is %s - %s: "+
			"a silent node must have destroyed its machines before they are placed again", short(f.LostAfter), short(grace)),
		"fleet.lease", "fleet.lost_after", "node.kill_grace")
}

func (c *checker) node() {
	n := c.settings.Node
	c.want(n.ID == "" || idPattern.MatchString(n.ID), "1 to 63 letters, digits, - or _", "node.id")
	_, emptyName := n.Labels[""]
	c.want(!emptyName, "labels with names", "node.labels")
	c.subset("node.backends", n.Backends, "microvm", "process")
	c.want(n.CPUs >= 0, "0, which means what the machine has, or more", "node.cpus")
	c.quantity("node.memory", n.Memory)
	c.quantity("node.disk", n.Disk)
	c.atLeast("node.slots", n.Slots, 1)
	c.atLeast("node.start_limit", n.StartLimit, 1)
	c.oneOf("node.accel", n.Accel, "auto", "kvm", "tcg")
	c.positive("node.boot_timeout", n.BootTimeout)
	c.positive("node.step_timeout", n.StepTimeout)
	c.positive("node.probe_timeout", n.ProbeTimeout)
	c.between("node.kill_grace", n.KillGrace, 0)
	c.atLeast("node.result_files", int64(n.ResultFiles), 1)
	c.atLeast("node.result_bytes", n.ResultBytes, 1)
	c.atLeast("node.log_bytes", n.LogBytes, 64<<10)
	c.atLeast("node.log_rate", n.LogRate, 1<<10)
	c.atLeast("node.log_buffer", n.LogBuffer, 64<<10)
	c.atLeast("node.snapshots", int64(n.Snapshots), 0)
	c.atLeast("node.snapshot_bytes", n.SnapshotBytes, 1<<20)
	c.images(n)
	c.want(n.RunUser != "" && n.RunUser != "root" && n.RunUser != "0", "an unprivileged user, such as nobody", "node.run_user")
}

func (c *checker) images(n Node) {
	c.hosts("node.image_registries", n.ImageRegistries)
	c.hosts("node.image_insecure", n.ImageInsecure)
	for _, host := range n.ImageInsecure {
		c.want(len(n.ImageRegistries) == 0 || slices.Contains(n.ImageRegistries, host),
			"hosts of node.image_registries, which has "+strings.Join(n.ImageRegistries, ", "), "node.image_insecure", "node.image_registries")
	}
	c.want(n.ImageAuth == "" || filepath.IsAbs(n.ImageAuth), "an absolute path", "node.image_auth")
	relative := slices.ContainsFunc(n.ImageLayouts, func(dir string) bool { return !filepath.IsAbs(dir) })
	c.want(!relative, "absolute paths", "node.image_layouts")
	c.positive("node.image_timeout", n.ImageTimeout)
	c.atLeast("node.image_bytes", n.ImageBytes, 1<<20)
	c.atLeast("node.image_files", int64(n.ImageFiles), 1)
	c.atLeast("node.image_cache_bytes", n.ImageCacheBytes, 1<<20)
}

// hosts wants names of hosts, with ports or without, as images have them.
func (c *checker) hosts(name string, hosts []string) {
	odd := slices.ContainsFunc(hosts, func(host string) bool { return host == "" || strings.ContainsAny(host, "/@ ") })
	c.want(!odd, "hosts with their ports, such as [registry.example.com, 127.0.0.1:5000], without https://", name)
}

func (c *checker) gateway() {
	g := c.settings.Gateway
	c.want(g.ID == "" || idPattern.MatchString(g.ID), "1 to 63 letters, digits, - or _", "gateway.id")
	c.subset("gateway.protocols", g.Protocols, "https", "ssh", "git", "file")
	relative := slices.ContainsFunc(g.Roots, func(root string) bool { return !filepath.IsAbs(root) })
	c.want(!relative, "absolute paths", "gateway.roots")
	malformed := slices.ContainsFunc(g.GitConfig, func(pair string) bool { return !isGitConfig(pair) })
	c.want(!malformed, "git settings such as http.proxy=http://proxy:3128", "gateway.git_config")
	c.secrets()
}

func (c *checker) wadm() {
	w := c.settings.Wadm
	c.want(subjectPattern.MatchString(strings.Trim(w.APIPrefix, " .")),
		"tokens of a NATS subject separated by dots, such as wadm.api", "wadm.api_prefix")
	c.want(tokenPattern.MatchString(w.Lattice), "one token of a NATS subject, such as default", "wadm.lattice")
	for _, url := range w.URLs {
		c.want(isServerList(url), "pairs of a lattice and a URL such as {default: \"nats://host:4222\"}", "wadm.urls")
	}
	odd := slices.ContainsFunc(w.Watch, func(name string) bool { return !tokenPattern.MatchString(name) })
	c.want(!odd, "tokens of a NATS subject, such as [default]", "wadm.watch")
	c.atLeast("wadm.concurrency", int64(w.Concurrency), 1)
}

func (c *checker) positive(name string, d time.Duration) {
	c.want(d > 0 && d <= longest, "more than 0s and at most "+short(longest), name)
}

func (c *checker) between(name string, d, least time.Duration) {
	c.want(d >= least && d <= longest, short(least)+" to "+short(longest), name)
}

func (c *checker) atLeast(name string, n, least int64) {
	c.want(n >= least, strconv.FormatInt(least, 10)+" or more", name)
}

func (c *checker) oneOf(name, value string, allowed ...string) {
	c.want(slices.Contains(allowed, value), "one of "+strings.Join(allowed, ", "), name)
}

// subset wants at least one of the allowed words and none twice.
func (c *checker) subset(name string, values []string, allowed ...string) {
	ok := len(values) > 0
	for i, value := range values {
		ok = ok && slices.Contains(allowed, value) && !slices.Contains(values[:i], value)
	}
	c.want(ok, "one or more of "+strings.Join(allowed, ", ")+", each once", name)
}

// quantity wants an amount; empty means what the machine has.
func (c *checker) quantity(name, text string) {
	if text == "" {
		return
	}
	mib, err := quantity.MiB(text)
	c.want(err == nil && mib > 0, "a whole number of MiB above 0 with its unit Ki, Mi, Gi or Ti, such as 512Mi or 8Gi", name)
}

func isHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// isListenAddress wants a host, so that nothing is open to all by omission, and
// takes port 0.
func isListenAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func isServerList(text string) bool {
	for server := range strings.SplitSeq(text, ",") {
		if !isURL(strings.TrimSpace(server), "nats", "tls", "ws", "wss") {
			return false
		}
	}
	return true
}

// isURL wants a host, or for Postgres a socket directory in the query.
func isURL(text string, schemes ...string) bool {
	u, err := url.Parse(text)
	if err != nil || !slices.Contains(schemes, u.Scheme) {
		return false
	}
	return u.Host != "" || u.Query().Get("host") != ""
}

func isGitConfig(pair string) bool {
	name, _, found := strings.Cut(pair, "=")
	section, rest, dotted := strings.Cut(name, ".")
	return found && dotted && section != "" && rest != ""
}
