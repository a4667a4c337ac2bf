package config_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"tidewait/config"
)

// inEmptyDir makes an empty working directory, so that no settings file is found.
func inEmptyDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	return dir
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func load(t *testing.T, o config.Options) config.Settings {
	t.Helper()
	if o.Env == nil {
		o.Env = []string{}
	}
	s, err := config.Load(o)
	require.NoError(t, err)
	return s
}

func TestDefaults(t *testing.T) {
	dir := inEmptyDir(t)
	require.Equal(t, config.Settings{
		DataDir:   filepath.Join(dir, ".data"),
		Log:       config.Log{Level: "info", Format: "text"},
		Telemetry: config.Telemetry{StuckAfter: 2 * time.Minute},
		Temporal:  config.Temporal{Retention: 168 * time.Hour, Encryption: "none", EncryptionKeys: []string{}},
		Codec:     config.Codec{Address: "127.0.0.1:8081", Origins: []string{}},
		NATS:      config.NATS{URL: "nats://127.0.0.1:4222"},
		Postgres:  config.Postgres{URL: "postgres://127.0.0.1:5432/tidewait", MaxConns: 16},
		Fleet: config.Fleet{
			Turn: time.Hour, RetryInterval: 10 * time.Second, AttemptBackoff: 10 * time.Second, HeartbeatInterval: 5 * time.Second,
			SuspectAfter: 15 * time.Second, Lease: 90 * time.Second, LostAfter: 2 * time.Minute,
			SweepInterval: 30 * time.Second, ObjectTTL: 24 * time.Hour, LogTTL: 168 * time.Hour,
			RunTTL: 2160 * time.Hour, WaitTTL: 2160 * time.Hour, ResultTTL: 2160 * time.Hour,
			LogBytes: 1073741824, StreamReplicas: 1, Priority: 50, Ageing: 30 * time.Minute, HeadWindow: 64,
		},
		Node: config.Node{
			Labels: map[string]string{}, Backends: []string{"microvm", "process"}, Slots: 16, StartLimit: 2,
			Accel: "auto", BootTimeout: 30 * time.Second, StepTimeout: 2 * time.Minute, KillGrace: 10 * time.Second,
			ResultFiles: 20000, ResultBytes: 1073741824, RunUser: "nobody", ProbeTimeout: time.Minute, KeepRuns: true,
			LogBytes: 16777216, LogRate: 1048576, LogBuffer: 4194304,
			Snapshots: 4, SnapshotBytes: 1073741824,
			ImageRegistries: []string{}, ImageInsecure: []string{}, ImageLayouts: []string{}, ImageTimeout: 10 * time.Minute,
			ImageBytes: 4294967296, ImageFiles: 200000, ImageCacheBytes: 10737418240,
		},
		Gateway: config.Gateway{
			Protocols: []string{"https", "ssh"}, Roots: []string{}, GitConfig: []string{},
			SecretEnv: []string{}, SecretCommands: map[string]string{}, SecretCommandTimeout: 10 * time.Second,
		},
		Wadm: config.Wadm{APIPrefix: "wadm.api", Lattice: "default", Concurrency: 64, Watch: []string{}, URLs: map[string]string{}, Credentials: map[string]string{}},
		Dev:  config.Dev{Nodes: 1},
	}, load(t, config.Options{}))
}

func TestTheDocumentedFileIsTheDefaults(t *testing.T) {
	documented, err := filepath.Abs("tidewait.yaml")
	require.NoError(t, err)
	inEmptyDir(t)
	require.Equal(t, load(t, config.Options{}), load(t, config.Options{File: documented}))
}

func TestTheDocumentedFileHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("tidewait.yaml")
	require.NoError(t, err)
	var document map[string]any
	require.NoError(t, yaml.Unmarshal(text, &document))
	var documented []string
	for name, value := range document {
		section, isSection := value.(map[string]any)
		if !isSection {
			documented = append(documented, name)
		}
		for child := range section {
			documented = append(documented, name+"."+child)
		}
	}
	require.ElementsMatch(t, []string{
		"data_dir", "log.level", "log.format", "telemetry.address", "telemetry.stuck_after",
		"temporal.config_file", "temporal.profile", "temporal.address", "temporal.namespace", "temporal.retention",
		"temporal.encryption", "temporal.encryption_keys", "codec.address", "codec.origins", "codec.token_file",
		"nats.url", "nats.credentials", "nats.ca", "nats.cert", "nats.key", "nats.inbox_prefix",
		"postgres.url", "postgres.max_conns",
		"fleet.turn", "fleet.max_wait", "fleet.retry_interval", "fleet.attempt_backoff", "fleet.heartbeat_interval", "fleet.suspect_after",
		"fleet.lease", "fleet.lost_after", "fleet.sweep_interval", "fleet.object_ttl", "fleet.log_ttl",
		"fleet.bundle_bytes", "fleet.run_ttl", "fleet.wait_ttl", "fleet.result_ttl",
		"fleet.log_bytes", "fleet.stream_replicas", "fleet.priority", "fleet.ageing", "fleet.head_window",
		"node.id", "node.labels", "node.backends", "node.cpus", "node.memory", "node.disk", "node.slots",
		"node.start_limit", "node.kernel", "node.modules", "node.guest_image", "node.qemu", "node.accel",
		"node.boot_timeout", "node.step_timeout", "node.kill_grace", "node.result_files", "node.result_bytes",
		"node.log_bytes", "node.log_rate", "node.log_buffer", "node.run_user", "node.probe_timeout", "node.keep_runs", "node.snapshots", "node.snapshot_bytes",
		"node.image_registries", "node.image_insecure", "node.image_auth", "node.image_layouts", "node.image_timeout",
		"node.image_bytes", "node.image_files", "node.image_cache_bytes",
		"wadm.api_prefix", "wadm.multitenant", "wadm.lattice", "wadm.protect_shared", "wadm.concurrency", "wadm.watch", "wadm.urls", "wadm.credentials",
		"gateway.id", "gateway.protocols", "gateway.roots", "gateway.git_config",
		"gateway.secret_dir", "gateway.secret_env", "gateway.secret_commands", "gateway.secret_command_timeout",
		"dev.temporal_cli", "dev.postgres_bin", "dev.nodes", "dev.simulated_hosts",
	}, documented)
	require.ElementsMatch(t, config.KeyNames(), documented)
}

func TestPrecedence(t *testing.T) {
	const file = "fleet:\n  turn: 10m\n  max_wait: 11m\n  lease: 80s\n"
	env := []string{"TIDEWAIT_FLEET_MAX_WAIT=12m", "TIDEWAIT_FLEET_LEASE=81s", "OTHER=1"}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.Duration("fleet.lease", 0, "")
	flags.Duration("fleet.turn", time.Second, "a flag that is not given changes nothing")
	flags.String("output", "", "a flag that is no key")
	require.NoError(t, flags.Parse([]string{"--fleet.lease=82s", "--output=json"}))

	dir := inEmptyDir(t)
	s := load(t, config.Options{File: write(t, filepath.Join(dir, "a.yaml"), file), Env: env, Flags: flags})
	require.Equal(t, 10*time.Second, s.Fleet.RetryInterval, "default")
	require.Equal(t, 10*time.Minute, s.Fleet.Turn, "file over default")
	require.Equal(t, 12*time.Minute, s.Fleet.MaxWait, "environment over file")
	require.Equal(t, 82*time.Second, s.Fleet.Lease, "flag over environment")
}

func TestWhereTheFileIsLookedFor(t *testing.T) {
	dir := inEmptyDir(t)
	write(t, "tidewait.yaml", "fleet: {priority: 1}")
	second := write(t, filepath.Join(dir, "second.yaml"), "fleet: {priority: 2}")
	third := write(t, filepath.Join(dir, "third.yaml"), "fleet: {priority: 3}")

	require.Equal(t, 1, load(t, config.Options{}).Fleet.Priority)
	env := []string{"TIDEWAIT_CONFIG=" + second}
	require.Equal(t, 2, load(t, config.Options{Env: env}).Fleet.Priority)
	require.Equal(t, 3, load(t, config.Options{Env: env, File: third}).Fleet.Priority)
}

func TestTheProcessEnvironmentIsRead(t *testing.T) {
	inEmptyDir(t)
	t.Setenv("TIDEWAIT_FLEET_PRIORITY", "7")
	s, err := config.Load(config.Options{})
	require.NoError(t, err)
	require.Equal(t, 7, s.Fleet.Priority)
}

func TestEveryTypeFromTheFile(t *testing.T) {
	dir := inEmptyDir(t)
	s := load(t, config.Options{File: write(t, filepath.Join(dir, "a.yaml"), `
data_dir: state
log: &log {level: debug}
postgres: {max_conns: 4}
fleet:
node:
  id: 7
  labels: {Zone: A, topology.example.com/Rack: "12"}
  backends: [process]
  cpus: 1.5
  memory: 8Gi
  kernel:
  result_bytes: 5000000000
gateway:
  roots:
    - /srv/git
`)})
	require.Equal(t, filepath.Join(dir, "state"), s.DataDir)
	require.Equal(t, "debug", s.Log.Level)
	require.Equal(t, int32(4), s.Postgres.MaxConns)
	require.Equal(t, time.Hour, s.Fleet.Turn, "an empty section sets nothing")
	require.Equal(t, "7", s.Node.ID)
	require.Equal(t, map[string]string{"Zone": "A", "topology.example.com/Rack": "12"}, s.Node.Labels)
	require.Equal(t, []string{"process"}, s.Node.Backends)
	require.Equal(t, 1.5, s.Node.CPUs)
	require.Equal(t, "8Gi", s.Node.Memory)
	require.Empty(t, s.Node.Kernel, "an empty value sets nothing")
	require.Equal(t, int64(5000000000), s.Node.ResultBytes)
	require.Equal(t, []string{"/srv/git"}, s.Gateway.Roots)
}

func TestEveryTypeFromTheEnvironment(t *testing.T) {
	inEmptyDir(t)
	s := load(t, config.Options{Env: []string{
		"TIDEWAIT_DATA_DIR=/var/lib/tidewait",
		"TIDEWAIT_POSTGRES_URL=postgres://u:p@db:5433/x?sslmode=require",
		"TIDEWAIT_POSTGRES_MAX_CONNS=4",
		"TIDEWAIT_FLEET_TURN=30s",
		"TIDEWAIT_NODE_LABELS=Zone=A,b=c=d",
		"TIDEWAIT_NODE_BACKENDS=process, microvm",
		"TIDEWAIT_NODE_CPUS=1.5",
		"TIDEWAIT_NODE_KERNEL=",
		"TIDEWAIT_DEV_TEMPORAL_CLI=/opt/temporal",
	}})
	require.Equal(t, "/var/lib/tidewait", s.DataDir)
	require.Equal(t, "postgres://u:p@db:5433/x?sslmode=require", s.Postgres.URL)
	require.Equal(t, int32(4), s.Postgres.MaxConns)
	require.Equal(t, 30*time.Second, s.Fleet.Turn)
	require.Equal(t, map[string]string{"Zone": "A", "b": "c=d"}, s.Node.Labels)
	require.Equal(t, []string{"process", "microvm"}, s.Node.Backends)
	require.Equal(t, 1.5, s.Node.CPUs)
	require.Empty(t, s.Node.Kernel)
	require.Equal(t, "/opt/temporal", s.Dev.TemporalCLI)
}

func TestEveryTypeFromFlags(t *testing.T) {
	inEmptyDir(t)
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.String("postgres.url", "", "")
	flags.String("level", "", "")
	flags.String("data-dir", "", "")
	flags.Duration("fleet.max-wait", 0, "")
	flags.Int("fleet.priority", 0, "")
	flags.Float64("node.cpus", 0, "")
	flags.StringSlice("node.backends", nil, "")
	flags.StringArray("gateway.roots", nil, "")
	flags.StringToString("node.labels", nil, "")
	require.NoError(t, flags.Parse([]string{
		"--postgres.url=postgres:///x?host=/run/postgresql", "--level=debug", "--data-dir=/d", "--fleet.max-wait=90m",
		"--fleet.priority=9", "--node.cpus=0.5", "--node.backends=process", "--gateway.roots=/a",
		"--gateway.roots=/b", "--node.labels=Zone=A",
	}))
	s := load(t, config.Options{Flags: flags, FlagKeys: map[string]string{"level": "log.level"}})
	require.Equal(t, "postgres:///x?host=/run/postgresql", s.Postgres.URL)
	require.Equal(t, "debug", s.Log.Level)
	require.Equal(t, "/d", s.DataDir)
	require.Equal(t, 90*time.Minute, s.Fleet.MaxWait)
	require.Equal(t, 9, s.Fleet.Priority)
	require.Equal(t, 0.5, s.Node.CPUs)
	require.Equal(t, []string{"process"}, s.Node.Backends)
	require.Equal(t, []string{"/a", "/b"}, s.Gateway.Roots)
	require.Equal(t, map[string]string{"Zone": "A"}, s.Node.Labels)
}

func TestABoundFlagNeedsAKey(t *testing.T) {
	inEmptyDir(t)
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.String("level", "", "")
	require.NoError(t, flags.Parse([]string{"--level=debug"}))
	_, err := config.Load(config.Options{Env: []string{}, Flags: flags, FlagKeys: map[string]string{"level": "log.lvl"}})
	require.EqualError(t, err, "flag --level is bound to log.lvl, which is no key")
}

func TestEffectiveMaxWait(t *testing.T) {
	require.Equal(t, 2*time.Hour, config.Fleet{Turn: time.Hour}.EffectiveMaxWait())
	require.Equal(t, time.Minute, config.Fleet{Turn: time.Hour, MaxWait: time.Minute}.EffectiveMaxWait())
}

func TestLatticesWithConnectionsOfTheirOwn(t *testing.T) {
	inEmptyDir(t)
	s := load(t, config.Options{Env: []string{
		"TIDEWAIT_NATS_URL=nats://main:4222", "TIDEWAIT_NATS_CREDENTIALS=main.creds",
		"TIDEWAIT_WADM_URLS=edge=nats://edge:4222,ACME/prod=tls://acme:4222?x=y", "TIDEWAIT_WADM_CREDENTIALS=prod=prod.creds",
	}})
	for _, c := range []struct {
		account, lattice string
		want             config.NATS
		own              bool
	}{
		{"default", "default", config.NATS{URL: "nats://main:4222", Credentials: "main.creds"}, false},
		{"default", "edge", config.NATS{URL: "nats://edge:4222", Credentials: "main.creds"}, true},
		{"default", "prod", config.NATS{URL: "nats://main:4222", Credentials: "prod.creds"}, true},
		{"ACME", "prod", config.NATS{URL: "tls://acme:4222?x=y", Credentials: "prod.creds"}, true},
	} {
		n, own := s.LatticeNATS(c.account, c.lattice)
		require.Equal(t, c.want, n, c.account+"/"+c.lattice)
		require.Equal(t, c.own, own)
	}
}
