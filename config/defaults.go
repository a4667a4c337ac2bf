package config

import "time"

// Defaults returns the settings of an installation that sets none. DataDir is
// relative; Load makes it absolute.
func Defaults() Settings {
	return Settings{
		DataDir:   ".data",
		Log:       Log{Level: "info", Format: "text"},
		Telemetry: Telemetry{StuckAfter: 2 * time.Minute},
		Temporal:  Temporal{Retention: 168 * time.Hour, Encryption: EncryptNothing, EncryptionKeys: []string{}},
		Codec:     Codec{Address: "127.0.0.1:8081", Origins: []string{}},
		NATS:      NATS{URL: "nats://127.0.0.1:4222"},
		Postgres:  Postgres{URL: "postgres://127.0.0.1:5432/tidewait", MaxConns: 16},
		Fleet: Fleet{
			Turn:              time.Hour,
			RetryInterval:     10 * time.Second,
			AttemptBackoff:    10 * time.Second,
			HeartbeatInterval: 5 * time.Second,
			SuspectAfter:      15 * time.Second,
			Lease:             90 * time.Second,
			LostAfter:         120 * time.Second,
			SweepInterval:     30 * time.Second,
			ObjectTTL:         24 * time.Hour,
			BundleBytes:       0,
			RunTTL:            2160 * time.Hour,
			WaitTTL:           2160 * time.Hour,
			ResultTTL:         2160 * time.Hour,
			LogTTL:            168 * time.Hour,
			LogBytes:          1 << 30,
			StreamReplicas:    1,
			Priority:          50,
			Ageing:            30 * time.Minute,
			HeadWindow:        64,
		},
		Node: Node{
			Labels:       map[string]string{},
			Backends:     []string{"microvm", "process"},
			Slots:        16,
			StartLimit:   2,
			Accel:        "auto",
			BootTimeout:  30 * time.Second,
			StepTimeout:  2 * time.Minute,
			KillGrace:    10 * time.Second,
			ResultFiles:  20000,
			ResultBytes:  1 << 30,
			LogBytes:     16 << 20,
			LogRate:      1 << 20,
			LogBuffer:    4 << 20,
			RunUser:      "nobody",
			ProbeTimeout: time.Minute,

			KeepRuns:      true,
			Snapshots:     4,
			SnapshotBytes: 1 << 30,

			ImageRegistries: []string{},
			ImageInsecure:   []string{},
			ImageLayouts:    []string{},
			ImageTimeout:    10 * time.Minute,
			ImageBytes:      4 << 30,
			ImageFiles:      200000,
			ImageCacheBytes: 10 << 30,
		},
		Gateway: Gateway{
			Protocols: []string{"https", "ssh"},
			Roots:     []string{},
			GitConfig: []string{},
			SecretEnv: []string{}, SecretCommands: map[string]string{}, SecretCommandTimeout: 10 * time.Second,
		},
		Wadm: Wadm{APIPrefix: "wadm.api", Lattice: "default", Concurrency: 64, Watch: []string{}, URLs: map[string]string{}, Credentials: map[string]string{}},
		Dev:  Dev{Nodes: 1},
	}
}
