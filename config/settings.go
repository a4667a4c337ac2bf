// Package config reads Tidewait's settings: defaults, then a file, then
// TIDEWAIT_* environment variables, then flags, the later winning.
package config

import "time"

// Settings is everything that can be configured. config/tidewait.yaml documents
// every key.
type Settings struct {
	DataDir   string    `mapstructure:"data_dir"` // directory for checkouts, run files and the dev stack
	Log       Log       `mapstructure:"log"`
	Telemetry Telemetry `mapstructure:"telemetry"`
	Temporal  Temporal  `mapstructure:"temporal"`
	Codec     Codec     `mapstructure:"codec"`
	NATS      NATS      `mapstructure:"nats"`
	Postgres  Postgres  `mapstructure:"postgres"`
	Fleet     Fleet     `mapstructure:"fleet"`
	Node      Node      `mapstructure:"node"`
	Gateway   Gateway   `mapstructure:"gateway"`
	Wadm      Wadm      `mapstructure:"wadm"`
	Dev       Dev       `mapstructure:"dev"`
}

// Log configures structured logs on standard error.
type Log struct {
	Level  string `mapstructure:"level"`  // debug, info, warn, error
	Format string `mapstructure:"format"` // text or json
}

// Telemetry configures metrics and health of a worker process. What goes out over
// OTLP is set by the OTEL_* variables.
type Telemetry struct {
	Address    string        `mapstructure:"address"`     // host:port of /metrics, /livez and /readyz; port 0: a free one; empty: nowhere
	StuckAfter time.Duration `mapstructure:"stuck_after"` // how much longer than its period a loop may take
}

// Temporal names the connection profile; the profile itself is Temporal's own
// temporal.toml, read through contrib/envconfig.
type Temporal struct {
	ConfigFile string        `mapstructure:"config_file"` // empty: Temporal's default place
	Profile    string        `mapstructure:"profile"`     // empty: "default"
	Address    string        `mapstructure:"address"`     // host:port; empty: the profile's, else 127.0.0.1:7233
	Namespace  string        `mapstructure:"namespace"`   // empty: the profile's, else "default"
	Retention  time.Duration `mapstructure:"retention"`   // of closed workflows, checked and set by setup
	// Encryption is what Temporal gets encrypted: none, payloads, or all, which is
	// messages and stack traces of failures too.
	Encryption     string   `mapstructure:"encryption"`
	EncryptionKeys []string `mapstructure:"encryption_keys"` // paths; the first one's key encrypts, all decrypt
}

// Codec configures the codec server, which decrypts for Temporal's Web UI and its
// command.
type Codec struct {
	Address   string   `mapstructure:"address"`    // host:port; port 0: a free one
	Origins   []string `mapstructure:"origins"`    // of Web UIs
	TokenFile string   `mapstructure:"token_file"` // path; empty: nobody is asked for a token
}

// NATS is the connection to NATS with JetStream.
type NATS struct {
	URL         string `mapstructure:"url"`         // several servers of one cluster: separated by commas
	Credentials string `mapstructure:"credentials"` // path of a .creds file
	CA          string `mapstructure:"ca"`          // path of a PEM file
	Cert        string `mapstructure:"cert"`
	Key         string `mapstructure:"key"`
	InboxPrefix string `mapstructure:"inbox_prefix"` // first tokens of the subjects of replies; empty: _INBOX
}

// Postgres is the connection of engines and of migrations.
type Postgres struct {
	URL      string `mapstructure:"url"`
	MaxConns int32  `mapstructure:"max_conns"`
}

// Fleet holds the rules that are the same for every mission.
type Fleet struct {
	Turn              time.Duration `mapstructure:"turn"`               // the longest a run may hold a node
	MaxWait           time.Duration `mapstructure:"max_wait"`           // 0: two turns
	RetryInterval     time.Duration `mapstructure:"retry_interval"`     // between tries of a phase that waits for capacity
	AttemptBackoff    time.Duration `mapstructure:"attempt_backoff"`    // after a phase's first failed attempt; doubled after each
	HeartbeatInterval time.Duration `mapstructure:"heartbeat_interval"` // of node agents
	SuspectAfter      time.Duration `mapstructure:"suspect_after"`      // silence after which a node gets no new work
	Lease             time.Duration `mapstructure:"lease"`              // silence after which an agent destroys its machines
	LostAfter         time.Duration `mapstructure:"lost_after"`         // silence after which a node's runs are placed again
	SweepInterval     time.Duration `mapstructure:"sweep_interval"`     // between comparisons of open rows with workflows
	ObjectTTL         time.Duration `mapstructure:"object_ttl"`         // workspaces and results in the object store
	BundleBytes       int64         `mapstructure:"bundle_bytes"`       // bundles of launches in the object store, in all; 0: as NATS allows
	RunTTL            time.Duration `mapstructure:"run_ttl"`            // launches that ended, with their phases and runs; 0: for ever
	WaitTTL           time.Duration `mapstructure:"wait_ttl"`           // waits that ended, and what people did; 0: for ever
	ResultTTL         time.Duration `mapstructure:"result_ttl"`         // branches and bundles of launches that ended; 0: for ever
	LogTTL            time.Duration `mapstructure:"log_ttl"`            // run logs in JetStream
	LogBytes          int64         `mapstructure:"log_bytes"`          // run logs in JetStream, in all
	StreamReplicas    int           `mapstructure:"stream_replicas"`    // copies of each stream and bucket in a cluster of NATS
	Priority          int           `mapstructure:"priority"`           // of a mission that names none
	Ageing            time.Duration `mapstructure:"ageing"`             // of waiting is worth one step of priority
	HeadWindow        int           `mapstructure:"head_window"`        // places in line whose retries are not stretched
}

// Node configures the node role.
type Node struct {
	ID           string            `mapstructure:"id"` // empty: the host's name
	Labels       map[string]string `mapstructure:"labels"`
	Backends     []string          `mapstructure:"backends"` // microvm, process
	CPUs         float64           `mapstructure:"cpus"`     // 0: what the machine has
	Memory       string            `mapstructure:"memory"`   // such as 8Gi; empty: what the machine has, less 512 MiB
	Disk         string            `mapstructure:"disk"`     // such as 50Gi; empty: nine tenths of what data_dir's file system has free
	Slots        int64             `mapstructure:"slots"`    // machines at once
	StartLimit   int64             `mapstructure:"start_limit"`
	Kernel       string            `mapstructure:"kernel"`      // directory with vmlinuz-VERSION; empty: /boot
	Modules      string            `mapstructure:"modules"`     // directory with VERSION/modules.dep; empty: /lib/modules
	GuestImage   string            `mapstructure:"guest_image"` // built by `tidewait-worker guest-image`
	QEMU         string            `mapstructure:"qemu"`
	Accel        string            `mapstructure:"accel"` // auto, kvm or tcg
	BootTimeout  time.Duration     `mapstructure:"boot_timeout"`
	StepTimeout  time.Duration     `mapstructure:"step_timeout"` // inject, secrets and collect, each
	KillGrace    time.Duration     `mapstructure:"kill_grace"`   // between TERM and the machine's end
	ResultFiles  int               `mapstructure:"result_files"`
	ResultBytes  int64             `mapstructure:"result_bytes"`
	LogBytes     int64             `mapstructure:"log_bytes"`     // most bytes of one machine's log
	LogRate      int64             `mapstructure:"log_rate"`      // most bytes of one machine's log a second
	LogBuffer    int64             `mapstructure:"log_buffer"`    // bytes of one machine's log that wait for NATS
	RunUser      string            `mapstructure:"run_user"`      // unprivileged user for machines when the agent is root
	ProbeTimeout time.Duration     `mapstructure:"probe_timeout"` // of one backend's probe
	// KeepRuns lets runs outlive the agent, so that the next one goes on with them.
	KeepRuns bool `mapstructure:"keep_runs"`
	// Snapshots is how many snapshots of booted microVMs are kept; 0: machines boot.
	Snapshots     int   `mapstructure:"snapshots"`
	SnapshotBytes int64 `mapstructure:"snapshot_bytes"` // of all snapshots together
	// Images other than the default.
	ImageRegistries []string      `mapstructure:"image_registries"`  // hosts, with ports, that may be asked; empty: any
	ImageInsecure   []string      `mapstructure:"image_insecure"`    // of them, those that are spoken to without TLS
	ImageAuth       string        `mapstructure:"image_auth"`        // path of a file as `docker login` writes it; empty: none
	ImageLayouts    []string      `mapstructure:"image_layouts"`     // directories below which OCI layouts may be
	ImageTimeout    time.Duration `mapstructure:"image_timeout"`     // of one pull
	ImageBytes      int64         `mapstructure:"image_bytes"`       // of one image, unpacked
	ImageFiles      int           `mapstructure:"image_files"`       // in one image
	ImageCacheBytes int64         `mapstructure:"image_cache_bytes"` // of all images that are kept
}

// Gateway configures the gateway role.
type Gateway struct {
	ID        string   `mapstructure:"id"`        // empty: the host's name
	Protocols []string `mapstructure:"protocols"` // of workspace URLs: https, ssh, git, file
	Roots     []string `mapstructure:"roots"`     // directories whose repositories file URLs may name
	GitConfig []string `mapstructure:"git_config"`
	// Secrets that missions may name. Nothing else is given away.
	SecretDir            string            `mapstructure:"secret_dir"` // absolute; a file for each secret; empty: none
	SecretEnv            []string          `mapstructure:"secret_env"` // variables
	SecretCommands       map[string]string `mapstructure:"secret_commands"`
	SecretCommandTimeout time.Duration     `mapstructure:"secret_command_timeout"`
}

// Wadm configures the API that wash and other clients of wadm speak.
type Wadm struct {
	APIPrefix     string   `mapstructure:"api_prefix"`     // first tokens of the subjects of requests
	Multitenant   bool     `mapstructure:"multitenant"`    // an account's token stands before the prefix
	Lattice       string   `mapstructure:"lattice"`        // of commands that name none
	ProtectShared bool     `mapstructure:"protect_shared"` // refuse to undeploy or delete what deployed applications refer to
	Concurrency   int      `mapstructure:"concurrency"`    // requests one engine works on at a time
	Watch         []string `mapstructure:"watch"`          // lattices that are observed even when nothing is deployed there
	// Lattices whose hosts are on another NATS, or in another account of it, by
	// LATTICE or ACCOUNT/LATTICE. Where only one of the two is given for a
	// lattice, the other is that of NATS.
	URLs        map[string]string `mapstructure:"urls"`
	Credentials map[string]string `mapstructure:"credentials"` // paths of .creds files
}

// LatticeNATS returns how the hosts of a lattice are reached, and whether that
// is a connection of its own.
func (s Settings) LatticeNATS(account, lattice string) (n NATS, own bool) {
	n = s.NATS
	for _, key := range []string{lattice, account + "/" + lattice} {
		if url, ok := s.Wadm.URLs[key]; ok {
			n.URL, own = url, true
		}
		if path, ok := s.Wadm.Credentials[key]; ok {
			n.Credentials, own = path, true
		}
	}
	return n, own
}

// Dev configures the stack of `tidewait dev`.
type Dev struct {
	TemporalCLI string `mapstructure:"temporal_cli"` // empty: beside the executable, then PATH
	PostgresBin string `mapstructure:"postgres_bin"` // directory with initdb and postgres; empty: looked for
	Nodes       int    `mapstructure:"nodes"`
	// SimulatedHosts is how many wasmCloud hosts are simulated, in the lattice of Wadm.
	SimulatedHosts int `mapstructure:"simulated_hosts"`
}

// EffectiveMaxWait is how long a phase may wait for capacity: MaxWait, or two
// turns when MaxWait is 0.
func (f Fleet) EffectiveMaxWait() time.Duration {
	if f.MaxWait == 0 {
		return 2 * f.Turn
	}
	return f.MaxWait
}
