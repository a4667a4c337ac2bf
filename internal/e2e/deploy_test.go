package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// promtool is in the repository's bin directory, or on PATH.
func promtool(t *testing.T, args ...string) string {
	t.Helper()
	program := filepath.Join("..", "..", "bin", "promtool")
	if _, err := os.Stat(program); err != nil {
		program, err = exec.LookPath("promtool")
		require.NoError(t, err, "run build/packages promtool")
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	require.NoErrorf(t, err, "promtool %s: %s", strings.Join(args, " "), out)
	return string(out)
}

func deployed(name string) string { return filepath.Join("..", "..", "deploy", name) }

func TestAlertRules(t *testing.T) {
	t.Parallel()
	require.Contains(t, promtool(t, "check", "rules", deployed("alerts.yaml")), "SUCCESS: 13 rules found")
	require.Contains(t, promtool(t, "test", "rules", deployed("alerts_test.yaml")), "SUCCESS")
}

// alerts are the rules, by name.
func alerts(t *testing.T) map[string]alert {
	t.Helper()
	text, err := os.ReadFile(deployed("alerts.yaml"))
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	found := map[string]alert{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			found[r.Alert] = r
		}
	}
	return found
}

type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Annotations map[string]string `yaml:"annotations"`
}

// TestEveryAlertHasARunbook: each rule is tested, and leads to a heading that is
// there.
func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	tests, err := os.ReadFile(deployed("alerts_test.yaml"))
	require.NoError(t, err)
	for name, rule := range alerts(t) {
		require.Contains(t, string(tests), "alertname: "+name, "no test provokes it")
		page, anchor, found := strings.Cut(rule.Annotations["runbook"], "#")
		require.True(t, found, name)
		text, err := os.ReadFile(filepath.Join("..", "..", page))
		require.NoError(t, err)
		require.Contains(t, anchors(string(text)), anchor, name)
	}
}

// anchors are the headings of a page as links name them.
func anchors(page string) []string {
	var found []string
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		found = append(found, strings.ReplaceAll(regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(heading, ""), " ", "-"))
	}
	return found
}

var metricName = regexp.MustCompile(`\b(?:tidewait|temporal|process|go)_[a-z0-9_]+\b`)

// namedMetrics are the metrics that dashboard and rules name, with one place each.
func namedMetrics(t *testing.T) map[string]string {
	t.Helper()
	named := map[string]string{}
	for name, rule := range alerts(t) {
		for _, metric := range metricName.FindAllString(rule.Expr, -1) {
			named[metric] = "alert " + name
		}
	}
	text, err := os.ReadFile(deployed("grafana-dashboard.json"))
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, metric := range metricName.FindAllString(target.Expr, -1) {
				named[metric] = "panel " + panel.Title
			}
		}
	}
	require.Greater(t, len(named), 25)
	return named
}

// documentedMetrics are those that docs/metrics.md has a row for.
func documentedMetrics(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(tidewait_[a-z_]+)").FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	return names
}

// checkQueries has Prometheus' own parser read every expression of the dashboard.
func checkQueries(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(deployed("grafana-dashboard.json"))
	require.NoError(t, err)
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	n := 0
	for _, m := range regexp.MustCompile(`"expr": (".*"),?\n`).FindAllStringSubmatch(string(text), -1) {
		n++
		fmt.Fprintf(&rules, "      - {record: \"q%d\", expr: %s}\n", n, strings.ReplaceAll(m[1], "$__rate_interval", "1m"))
	}
	path := filepath.Join(t.TempDir(), "queries.yaml")
	require.NoError(t, os.WriteFile(path, []byte(rules.String()), 0o600))
	require.Contains(t, promtool(t, "check", "rules", path), fmt.Sprintf("SUCCESS: %d rules found", n))
	require.Greater(t, n, 25)
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	checkQueries(t)
}

// reported are the names of the metrics of samples.
func (s samples) reported() []string {
	names := map[string]bool{}
	for series := range s {
		name, _, _ := strings.Cut(series, "{")
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}
