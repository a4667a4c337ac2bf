package config_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"tidewait/config"
)

func TestFileRefusals(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"unknown key", "fleet:\n  trun: 1h\n", "fleet.trun (tidewait.yaml:2): no such key; fleet has turn, max_wait, " +
			"retry_interval, attempt_backoff, heartbeat_interval, suspect_after, lease, lost_after, sweep_interval, object_ttl, bundle_bytes, run_ttl, wait_ttl, result_ttl, log_ttl, log_bytes, stream_replicas, priority, ageing, head_window"},
		{"unknown section", "flet: {}\n", "flet (tidewait.yaml:1): no such key; " +
			"the top level has data_dir, log, telemetry, temporal, codec, nats, postgres, fleet, node, gateway, wadm, dev"},
		{"upper case", "Log: {}\n", "Log (tidewait.yaml:1): no such key; " +
			"the top level has data_dir, log, telemetry, temporal, codec, nats, postgres, fleet, node, gateway, wadm, dev"},
		{"dotted key", "log.lvl: debug\n", "log.lvl (tidewait.yaml:1): no such key; " +
			"the top level has data_dir, log, telemetry, temporal, codec, nats, postgres, fleet, node, gateway, wadm, dev"},
		{"key twice", "log:\n  level: info\n  level: debug\n", "log.level (tidewait.yaml:3): the key is there twice: keep one"},
		{"section twice", "log:\n  level: info\nlog:\n  format: json\n", "log (tidewait.yaml:3): the key is there twice: keep one"},
		{"value for a section", "log: info\n", `log = "info" (tidewait.yaml:1): want the keys level, format`},
		{"list for a section", "log: [info]\n", `log = a list (tidewait.yaml:1): want the keys level, format`},
		{"list at the top", "- log\n", "tidewait.yaml = a list (tidewait.yaml:1): " +
			"want the keys data_dir, log, telemetry, temporal, codec, nats, postgres, fleet, node, gateway, wadm, dev"},
		{"no data directory", "data_dir: ''\n", `data_dir = "" (tidewait.yaml:1): want the path of a directory`},
		{"mapping for text", "log: {level: {a: b}}\n", `log.level = a mapping (tidewait.yaml:1): want text`},
		{"text for a number", "node: {slots: many}\n", `node.slots = "many" (tidewait.yaml:1): want a whole number of at most 64 bits`},
		{"fraction for a number", "node: {slots: 1.5}\n", `node.slots = "1.5" (tidewait.yaml:1): want a whole number of at most 64 bits`},
		{"too large", "postgres: {max_conns: 2147483648}\n", `postgres.max_conns = "2147483648" (tidewait.yaml:1): want a whole number of at most 32 bits`},
		{"no number", "node: {cpus: .nan}\n", `node.cpus = ".nan" (tidewait.yaml:1): want a number such as 4 or 1.5`},
		{"infinite", "node: {cpus: Inf}\n", `node.cpus = "Inf" (tidewait.yaml:1): want a number such as 4 or 1.5`},
		{"number for a duration", "fleet: {turn: 60}\n", `fleet.turn = "60" (tidewait.yaml:1): want a duration such as 90s, 5m or 1h30m`},
		{"text for a list", "node: {backends: process}\n", `node.backends = "process" (tidewait.yaml:1): want a list such as [a, b]`},
		{"lists in a list", "node: {backends: [[process]]}\n", `node.backends = a list (tidewait.yaml:1): want a list such as [a, b]`},
		{"list for labels", "node: {labels: [a]}\n", `node.labels = a list (tidewait.yaml:1): want pairs of a name and a value, each name once`},
		{"label twice", "node:\n  labels: {a: b, a: c}\n", `node.labels = a mapping (tidewait.yaml:2): want pairs of a name and a value, each name once`},
		{"label without value", "node:\n  labels: {a: }\n", `node.labels = a mapping (tidewait.yaml:2): want pairs of a name and a value, each name once`},
	} {
		t.Run(c.name, func(t *testing.T) {
			inEmptyDir(t)
			write(t, "tidewait.yaml", c.yaml)
			_, err := config.Load(config.Options{Env: []string{}})
			require.EqualError(t, err, "setting refused: "+c.want)
		})
	}
}

func TestImpossibleValues(t *testing.T) {
	const yearLong = ": want more than 0s and at most 8760h"
	const commandsWanted = "want pairs of a name and a program with its arguments, such as {ci: /usr/bin/vault read -field=token secret/ci}"
	for _, c := range []struct{ env, want string }{
		{"LOG_LEVEL=loud", `log.level = "loud" (TIDEWAIT_LOG_LEVEL): want one of debug, info, warn, error`},
		{"WADM_API_PREFIX=wadm.*", `wadm.api_prefix = "wadm.*" (TIDEWAIT_WADM_API_PREFIX): want tokens of a NATS subject separated by dots, such as wadm.api`},
		{"WADM_API_PREFIX= . ", `wadm.api_prefix = " . " (TIDEWAIT_WADM_API_PREFIX): want tokens of a NATS subject separated by dots, such as wadm.api`},
		{"WADM_LATTICE=a.b", `wadm.lattice = "a.b" (TIDEWAIT_WADM_LATTICE): want one token of a NATS subject, such as default`},
		{"WADM_MULTITENANT=yes", `wadm.multitenant = "yes" (TIDEWAIT_WADM_MULTITENANT): want true or false`},
		{"WADM_CONCURRENCY=0", `wadm.concurrency = "0" (TIDEWAIT_WADM_CONCURRENCY): want 1 or more`},
		{"LOG_FORMAT=xml", `log.format = "xml" (TIDEWAIT_LOG_FORMAT): want one of text, json`},
		{"TELEMETRY_ADDRESS=:9464", `telemetry.address = ":9464" (TIDEWAIT_TELEMETRY_ADDRESS): want host:port, such as 127.0.0.1:9464, or nothing`},
		{"TELEMETRY_STUCK_AFTER=0s", `telemetry.stuck_after = "0s" (TIDEWAIT_TELEMETRY_STUCK_AFTER): want more than 0s and at most 8760h`},
		{"TEMPORAL_ADDRESS=localhost", `temporal.address = "localhost" (TIDEWAIT_TEMPORAL_ADDRESS): want host:port, such as 127.0.0.1:7233`},
		{"TEMPORAL_ADDRESS=localhost:99999", `temporal.address = "localhost:99999" (TIDEWAIT_TEMPORAL_ADDRESS): want host:port, such as 127.0.0.1:7233`},
		{"TEMPORAL_RETENTION=1m", `temporal.retention = "1m" (TIDEWAIT_TEMPORAL_RETENTION): want 1h to 8760h`},
		{"TEMPORAL_ENCRYPTION=some", `temporal.encryption = "some" (TIDEWAIT_TEMPORAL_ENCRYPTION): want one of none, payloads, all`},
		{"TEMPORAL_ENCRYPTION=all", `temporal.encryption = "all" (TIDEWAIT_TEMPORAL_ENCRYPTION): want temporal.encryption_keys beside it: there is no encryption without a key`},
		{"TEMPORAL_ENCRYPTION_KEYS=/etc/k1,k2", `temporal.encryption_keys = "/etc/k1,k2" (TIDEWAIT_TEMPORAL_ENCRYPTION_KEYS): want absolute paths`},
		{"CODEC_ADDRESS=:8081", `codec.address = ":8081" (TIDEWAIT_CODEC_ADDRESS): want host:port, such as 127.0.0.1:8081`},
		{"CODEC_ADDRESS=0.0.0.0:8081", `codec.address = "0.0.0.0:8081" (TIDEWAIT_CODEC_ADDRESS): want an address of this machine, such as 127.0.0.1:8081, unless codec.token_file says what others must know: a codec server decrypts for whoever may ask`},
		{"CODEC_ADDRESS=codec.example.com:8081", `codec.address = "codec.example.com:8081" (TIDEWAIT_CODEC_ADDRESS): want an address of this machine, such as 127.0.0.1:8081, unless codec.token_file says what others must know: a codec server decrypts for whoever may ask`},
		{"CODEC_ORIGINS=http://127.0.0.1:8233/", `codec.origins = "http://127.0.0.1:8233/" (TIDEWAIT_CODEC_ORIGINS): want scheme, host and port of Web UIs, such as [http://127.0.0.1:8233]`},
		{"CODEC_ORIGINS=*", `codec.origins = "*" (TIDEWAIT_CODEC_ORIGINS): want scheme, host and port of Web UIs, such as [http://127.0.0.1:8233]`},
		{"CODEC_TOKEN_FILE=token", `codec.token_file = "token" (TIDEWAIT_CODEC_TOKEN_FILE): want an absolute path`},
		{"NATS_URL=http://me:secret@h", `nats.url = "http://h" (TIDEWAIT_NATS_URL): want nats://host:port, tls://host:port, ws:// or wss://, several separated by commas`},
		{"NATS_URL=nats://a,b", `nats.url = (not shown) (TIDEWAIT_NATS_URL): want nats://host:port, tls://host:port, ws:// or wss://, several separated by commas`},
		{"NATS_INBOX_PREFIX=inbox", `nats.inbox_prefix = "inbox" (TIDEWAIT_NATS_INBOX_PREFIX): want tokens of a NATS subject that begin with _, such as _INBOX.engine`},
		{"NATS_INBOX_PREFIX=_INBOX.>", `nats.inbox_prefix = "_INBOX.>" (TIDEWAIT_NATS_INBOX_PREFIX): want tokens of a NATS subject that begin with _, such as _INBOX.engine`},
		{"WADM_URLS=default=http://me:secret@h", `wadm.urls = (not shown) (TIDEWAIT_WADM_URLS): want pairs of a lattice and a URL such as {default: "nats://host:4222"}`},
		{"NATS_KEY=k.pem", `nats.key = "k.pem" (TIDEWAIT_NATS_KEY): want nats.cert beside it: a key needs its certificate`},
		{"NATS_CERT=c.pem", `nats.cert = "c.pem" (TIDEWAIT_NATS_CERT): want nats.key beside it: a certificate needs its key`},
		{"POSTGRES_URL=mysql://me:secret@h/d?password=secret", `postgres.url = "mysql://h/d" (TIDEWAIT_POSTGRES_URL): want postgres://user:password@host:port/database`},
		{"POSTGRES_URL=host=h password=secret", `postgres.url = (not shown) (TIDEWAIT_POSTGRES_URL): want postgres://user:password@host:port/database`},
		{"POSTGRES_MAX_CONNS=0", `postgres.max_conns = "0" (TIDEWAIT_POSTGRES_MAX_CONNS): want 1 or more`},
		{"FLEET_TURN=0s", `fleet.turn = "0s" (TIDEWAIT_FLEET_TURN)` + yearLong},
		{"FLEET_TURN=-1h", `fleet.turn = "-1h" (TIDEWAIT_FLEET_TURN)` + yearLong},
		{"FLEET_TURN=2000000h", `fleet.turn = "2000000h" (TIDEWAIT_FLEET_TURN)` + yearLong},
		{"FLEET_MAX_WAIT=-1s", `fleet.max_wait = "-1s" (TIDEWAIT_FLEET_MAX_WAIT): want 0, which means two turns, or at most two turns; fleet.turn is 1h`},
		{"FLEET_MAX_WAIT=2h1s", `fleet.max_wait = "2h1s" (TIDEWAIT_FLEET_MAX_WAIT): want 0, which means two turns, or at most two turns; fleet.turn is 1h`},
		{"FLEET_RETRY_INTERVAL=0s", `fleet.retry_interval = "0s" (TIDEWAIT_FLEET_RETRY_INTERVAL)` + yearLong},
		{"FLEET_HEARTBEAT_INTERVAL=7501ms", `fleet.heartbeat_interval = "7501ms" (TIDEWAIT_FLEET_HEARTBEAT_INTERVAL): want at most half of fleet.suspect_after, which is 15s`},
		{"FLEET_SUSPECT_AFTER=90s", `fleet.suspect_after = "90s" (TIDEWAIT_FLEET_SUSPECT_AFTER): want less than fleet.lease, which is 1m30s`},
		{"FLEET_LEASE=110s", `fleet.lease = "110s" (TIDEWAIT_FLEET_LEASE): want less than fleet.lost_after minus node.kill_grace, which is 2m - 10s: a silent node must have destroyed its machines before they are placed again`},
		{"FLEET_LOST_AFTER=100s", `fleet.lease = "1m30s" (default): want less than fleet.lost_after minus node.kill_grace, which is 1m40s - 10s: a silent node must have destroyed its machines before they are placed again`},
		{"FLEET_ATTEMPT_BACKOFF=0s", `fleet.attempt_backoff = "0s" (TIDEWAIT_FLEET_ATTEMPT_BACKOFF)` + yearLong},
		{"FLEET_SWEEP_INTERVAL=0s", `fleet.sweep_interval = "0s" (TIDEWAIT_FLEET_SWEEP_INTERVAL)` + yearLong},
		{"FLEET_OBJECT_TTL=0s", `fleet.object_ttl = "0s" (TIDEWAIT_FLEET_OBJECT_TTL)` + yearLong},
		{"FLEET_LOG_TTL=0s", `fleet.log_ttl = "0s" (TIDEWAIT_FLEET_LOG_TTL)` + yearLong},
		{"FLEET_LOG_BYTES=1000", `fleet.log_bytes = "1000" (TIDEWAIT_FLEET_LOG_BYTES): want 1048576 or more`},
		{"FLEET_PRIORITY=101", `fleet.priority = "101" (TIDEWAIT_FLEET_PRIORITY): want 0 to 100`},
		{"FLEET_PRIORITY=-1", `fleet.priority = "-1" (TIDEWAIT_FLEET_PRIORITY): want 0 to 100`},
		{"FLEET_AGEING=0s", `fleet.ageing = "0s" (TIDEWAIT_FLEET_AGEING)` + yearLong},
		{"FLEET_HEAD_WINDOW=0", `fleet.head_window = "0" (TIDEWAIT_FLEET_HEAD_WINDOW): want 1 or more`},
		{"GATEWAY_SECRET_DIR=secrets", `gateway.secret_dir = "secrets" (TIDEWAIT_GATEWAY_SECRET_DIR): want an absolute path`},
		{"GATEWAY_SECRET_ENV=TOKEN,A-B", `gateway.secret_env = "TOKEN,A-B" (TIDEWAIT_GATEWAY_SECRET_ENV): want names of environment variables, such as [NPM_TOKEN]`},
		{"GATEWAY_SECRET_COMMANDS=ci=vault read", `gateway.secret_commands = "ci=vault read" (TIDEWAIT_GATEWAY_SECRET_COMMANDS): ` + commandsWanted},
		{"GATEWAY_SECRET_COMMANDS=ci= ", `gateway.secret_commands = "ci= " (TIDEWAIT_GATEWAY_SECRET_COMMANDS): ` + commandsWanted},
		{"GATEWAY_SECRET_COMMANDS=.ci=/bin/true", `gateway.secret_commands = ".ci=/bin/true" (TIDEWAIT_GATEWAY_SECRET_COMMANDS): ` + commandsWanted},
		{"GATEWAY_SECRET_COMMAND_TIMEOUT=0s", `gateway.secret_command_timeout = "0s" (TIDEWAIT_GATEWAY_SECRET_COMMAND_TIMEOUT): want more than 0s and at most 25s`},
		{"GATEWAY_SECRET_COMMAND_TIMEOUT=26s", `gateway.secret_command_timeout = "26s" (TIDEWAIT_GATEWAY_SECRET_COMMAND_TIMEOUT): want more than 0s and at most 25s`},
		{"NODE_ID=a.b", `node.id = "a.b" (TIDEWAIT_NODE_ID): want 1 to 63 letters, digits, - or _`},
		{"NODE_LABELS=a", `node.labels = "a" (TIDEWAIT_NODE_LABELS): want pairs of a name and a value, each name once`},
		{"NODE_LABELS==a", `node.labels = "=a" (TIDEWAIT_NODE_LABELS): want labels with names`},
		{"NODE_BACKENDS=process,docker", `node.backends = "process,docker" (TIDEWAIT_NODE_BACKENDS): want one or more of microvm, process, each once`},
		{"NODE_BACKENDS=process,process", `node.backends = "process,process" (TIDEWAIT_NODE_BACKENDS): want one or more of microvm, process, each once`},
		{"NODE_BACKENDS=,", `node.backends = "," (TIDEWAIT_NODE_BACKENDS): want one or more of microvm, process, each once`},
		{"NODE_CPUS=-1", `node.cpus = "-1" (TIDEWAIT_NODE_CPUS): want 0, which means what the machine has, or more`},
		{"NODE_MEMORY=8GB", `node.memory = "8GB" (TIDEWAIT_NODE_MEMORY): want a whole number of MiB above 0 with its unit Ki, Mi, Gi or Ti, such as 512Mi or 8Gi`},
		{"NODE_DISK=0Gi", `node.disk = "0Gi" (TIDEWAIT_NODE_DISK): want a whole number of MiB above 0 with its unit Ki, Mi, Gi or Ti, such as 512Mi or 8Gi`},
		{"NODE_SLOTS=0", `node.slots = "0" (TIDEWAIT_NODE_SLOTS): want 1 or more`},
		{"NODE_START_LIMIT=0", `node.start_limit = "0" (TIDEWAIT_NODE_START_LIMIT): want 1 or more`},
		{"NODE_ACCEL=hvf", `node.accel = "hvf" (TIDEWAIT_NODE_ACCEL): want one of auto, kvm, tcg`},
		{"NODE_BOOT_TIMEOUT=0s", `node.boot_timeout = "0s" (TIDEWAIT_NODE_BOOT_TIMEOUT)` + yearLong},
		{"NODE_STEP_TIMEOUT=0s", `node.step_timeout = "0s" (TIDEWAIT_NODE_STEP_TIMEOUT)` + yearLong},
		{"NODE_PROBE_TIMEOUT=0s", `node.probe_timeout = "0s" (TIDEWAIT_NODE_PROBE_TIMEOUT)` + yearLong},
		{"NODE_KILL_GRACE=-1s", `node.kill_grace = "-1s" (TIDEWAIT_NODE_KILL_GRACE): want 0s to 8760h`},
		{"NODE_RESULT_FILES=0", `node.result_files = "0" (TIDEWAIT_NODE_RESULT_FILES): want 1 or more`},
		{"NODE_RESULT_BYTES=0", `node.result_bytes = "0" (TIDEWAIT_NODE_RESULT_BYTES): want 1 or more`},
		{"NODE_SNAPSHOTS=-1", `node.snapshots = "-1" (TIDEWAIT_NODE_SNAPSHOTS): want 0 or more`},
		{"NODE_IMAGE_REGISTRIES=https://registry.example.com", `node.image_registries = "https://registry.example.com" (TIDEWAIT_NODE_IMAGE_REGISTRIES): want hosts with their ports, such as [registry.example.com, 127.0.0.1:5000], without https://`},
		{"NODE_IMAGE_INSECURE=a/b", `node.image_insecure = "a/b" (TIDEWAIT_NODE_IMAGE_INSECURE): want hosts with their ports, such as [registry.example.com, 127.0.0.1:5000], without https://`},
		{"NODE_IMAGE_AUTH=auth.json", `node.image_auth = "auth.json" (TIDEWAIT_NODE_IMAGE_AUTH): want an absolute path`},
		{"NODE_IMAGE_LAYOUTS=/srv/images,images", `node.image_layouts = "/srv/images,images" (TIDEWAIT_NODE_IMAGE_LAYOUTS): want absolute paths`},
		{"NODE_IMAGE_TIMEOUT=0s", `node.image_timeout = "0s" (TIDEWAIT_NODE_IMAGE_TIMEOUT)` + yearLong},
		{"NODE_IMAGE_BYTES=1", `node.image_bytes = "1" (TIDEWAIT_NODE_IMAGE_BYTES): want 1048576 or more`},
		{"NODE_IMAGE_FILES=0", `node.image_files = "0" (TIDEWAIT_NODE_IMAGE_FILES): want 1 or more`},
		{"NODE_IMAGE_CACHE_BYTES=1", `node.image_cache_bytes = "1" (TIDEWAIT_NODE_IMAGE_CACHE_BYTES): want 1048576 or more`},
		{"NODE_SNAPSHOT_BYTES=1000", `node.snapshot_bytes = "1000" (TIDEWAIT_NODE_SNAPSHOT_BYTES): want 1048576 or more`},
		{"NODE_RUN_USER=root", `node.run_user = "root" (TIDEWAIT_NODE_RUN_USER): want an unprivileged user, such as nobody`},
		{"GATEWAY_ID=a b", `gateway.id = "a b" (TIDEWAIT_GATEWAY_ID): want 1 to 63 letters, digits, - or _`},
		{"GATEWAY_PROTOCOLS=http", `gateway.protocols = "http" (TIDEWAIT_GATEWAY_PROTOCOLS): want one or more of https, ssh, git, file, each once`},
		{"GATEWAY_ROOTS=srv/git", `gateway.roots = "srv/git" (TIDEWAIT_GATEWAY_ROOTS): want absolute paths`},
		{"GATEWAY_GIT_CONFIG=proxy=x", `gateway.git_config = "proxy=x" (TIDEWAIT_GATEWAY_GIT_CONFIG): want git settings such as http.proxy=http://proxy:3128`},
		{"DEV_NODES=17", `dev.nodes = "17" (TIDEWAIT_DEV_NODES): want 0 to 16`},
		{"DEV_SIMULATED_HOSTS=201", `dev.simulated_hosts = "201" (TIDEWAIT_DEV_SIMULATED_HOSTS): want 0 to 200`},
		{"DEV_SIMULATED_HOSTS=-1", `dev.simulated_hosts = "-1" (TIDEWAIT_DEV_SIMULATED_HOSTS): want 0 to 200`},
		{"FLET_TURN=1h", `TIDEWAIT_FLET_TURN (environment): no such setting; a variable is TIDEWAIT_ and a key, such as TIDEWAIT_FLEET_MAX_WAIT for fleet.max_wait`},
	} {
		t.Run(c.env, func(t *testing.T) {
			inEmptyDir(t)
			_, err := config.Load(config.Options{Env: []string{"TIDEWAIT_" + c.env}})
			require.EqualError(t, err, "setting refused: "+c.want)
		})
	}
}

func TestFlagRefusals(t *testing.T) {
	inEmptyDir(t)
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.String("level", "", "")
	flags.String("fleet.max-wait", "", "")
	require.NoError(t, flags.Parse([]string{"--level=loud", "--fleet.max-wait=long"}))
	_, err := config.Load(config.Options{Env: []string{}, Flags: flags, FlagKeys: map[string]string{"level": "log.level"}})
	require.EqualError(t, err, "2 settings refused:\n"+
		"  fleet.max_wait = \"long\" (--fleet.max-wait): want a duration such as 90s, 5m or 1h30m\n"+
		"  log.level = \"loud\" (--level): want one of debug, info, warn, error")
}

func TestAllFaultsAreToldAtOnce(t *testing.T) {
	inEmptyDir(t)
	write(t, "tidewait.yaml", "fleet:\n  turn: soon\n  lease: 1h\nnode:\n  accel: warp\nx: 1\n")
	_, err := config.Load(config.Options{Env: []string{"TIDEWAIT_DEV_NODES=-1", "TIDEWAIT_Y=1"}})
	var faults config.Faults
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults, 6)
	require.Equal(t, config.Fault{
		Key: "fleet.turn", Value: `"soon"`, Origin: "tidewait.yaml:2", Want: "want a duration such as 90s, 5m or 1h30m",
	}, faults[0])
	lines := strings.Split(err.Error(), "\n")
	require.Equal(t, "6 settings refused:", lines[0])
	require.Equal(t, `  x (tidewait.yaml:6): no such key; the top level has data_dir, log, telemetry, temporal, codec, nats, postgres, fleet, node, gateway, wadm, dev`, lines[2])
	require.Equal(t, `  TIDEWAIT_Y (environment): no such setting; a variable is TIDEWAIT_ and a key, such as TIDEWAIT_FLEET_MAX_WAIT for fleet.max_wait`, lines[3])
	require.Equal(t, `  dev.nodes = "-1" (TIDEWAIT_DEV_NODES): want 0 to 16`, lines[4])
	require.Equal(t, `  fleet.lease = "1h" (tidewait.yaml:3): want less than fleet.lost_after minus node.kill_grace, which is 2m - 10s: `+
		`a silent node must have destroyed its machines before they are placed again`, lines[5])
	require.Equal(t, `  node.accel = "warp" (tidewait.yaml:5): want one of auto, kvm, tcg`, lines[6])
}

func TestAFileThatIsOverriddenIsCheckedToo(t *testing.T) {
	inEmptyDir(t)
	write(t, "tidewait.yaml", "fleet: {turn: soon}\n")
	_, err := config.Load(config.Options{Env: []string{"TIDEWAIT_FLEET_TURN=1h"}})
	require.EqualError(t, err, `setting refused: fleet.turn = "soon" (tidewait.yaml:1): want a duration such as 90s, 5m or 1h30m`)
}

func TestUnreadableFiles(t *testing.T) {
	inEmptyDir(t)
	_, err := config.Load(config.Options{Env: []string{}, File: "missing.yaml"})
	require.EqualError(t, err, "cannot read the settings file: open missing.yaml: no such file or directory")
	require.ErrorIs(t, err, fs.ErrNotExist)

	write(t, "broken.yaml", "fleet: [\n")
	_, err = config.Load(config.Options{Env: []string{}, File: "broken.yaml"})
	require.EqualError(t, err, "the settings file broken.yaml is not YAML: yaml: line 1: did not find expected node content")

	write(t, "two.yaml", "log: {}\n---\nlog: {}\n")
	_, err = config.Load(config.Options{Env: []string{}, File: "two.yaml"})
	require.EqualError(t, err, "the settings file two.yaml has more than one YAML document: keep one")
}
