package config_test

import (
	"os"
	"testing"

	"tidewait/config"
)

func FuzzLoad(f *testing.F) {
	documented, err := os.ReadFile("tidewait.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(documented), "", "---\n", "null\n", "a: &a [*a]\n", "log: &l {level: *l}\n", "node: {labels: {<<: {a: b}}}\n",
		"? [a]\n: b\n", "log: !!binary aGk=\n", "fleet: {max_wait: -2562047h47m16s, turn: 2562047h}\n", "- a\n--- b",
	} {
		f.Add(seed)
	}
	path := f.TempDir() + "/tidewait.yaml"
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := config.Load(config.Options{File: path, Env: []string{}})
		if err == nil && (s.Fleet.Turn <= 0 || s.Fleet.EffectiveMaxWait() > 2*s.Fleet.Turn || s.Node.Slots < 1) {
			t.Errorf("impossible settings were taken from %q: %+v", text, s)
		}
	})
}
