package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/examples"
	"tidewait/internal/natstest"
)

// outcome is what a command line printed, its times, the name of who runs the test
// and the widths of its columns taken out, and its exit code.
type outcome struct {
	code        int
	out, errors string
}

var (
	moments = regexp.MustCompile(`(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\dZ( \(\d+ m?s ago\))?`)
	ages    = regexp.MustCompile(`\b\d+ m?s, no bound`)
	people  = regexp.MustCompile(`\b\w+@[\w.-]+\b`)
	gaps    = regexp.MustCompile(`(?m)  +`)
)

func masked(text string) string {
	text = people.ReplaceAllString(text, "US")
	text = ages.ReplaceAllString(moments.ReplaceAllString(text, "MOMENT"), "AGE, no bound")
	return gaps.ReplaceAllString(text, "  ")
}

func (p *product) app(args ...string) outcome {
	p.t.Helper()
	out, errs, code := p.tidewait(append([]string{"app"}, args...)...)
	return outcome{code, masked(out), masked(errs)}
}

// exampleApps writes the example applications to a directory.
func exampleApps(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, examples.Apps))
	return filepath.Join(dir, "apps")
}

const never = "no host of lattice default has been observed yet; nothing is started until one appears"

func TestApplications(t *testing.T) {
	t.Parallel()
	p := start(t)
	dir := exampleApps(t)
	hello := filepath.Join(dir, "hello.yaml")

	require.Equal(t, outcome{0, hello + ": application hello is valid, 2 components\n", ""}, p.app("validate", hello))
	require.Equal(t, outcome{0, "no applications in lattice default\n", ""}, p.app("list"))
	require.Equal(t, outcome{0, "stored hello version v1 in lattice default; it has 1 version\n", ""}, p.app("put", hello))
	require.Equal(t, outcome{0, `NAME  LATEST  DEPLOYED  STATUS  SINCE  WHY  DESCRIPTION
hello  v1  -  undeployed  -  -  A component that answers HTTP requests
`, ""}, p.app("list"))
	require.Equal(t, outcome{0, "application hello in lattice default  undeployed\n  put  by US, MOMENT, version v1\n", ""}, p.app("status", "hello"))

	require.Equal(t, outcome{0, "deployed hello version v1 in lattice default\nwaiting: " + never + "\n", ""}, p.app("deploy", "hello"))
	waitsAre(p, "default/hello  lattice  never_observed")

	second := filepath.Join(dir, "second.yaml")
	text, err := os.ReadFile(hello)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(second, []byte(strings.Replace(string(text), "version: v1", "version: v2", 1)), 0o600))
	require.Equal(t, outcome{0, "stored hello version v2 in lattice default; it has 2 versions\ndeployed hello version v2 in lattice default\nwaiting: " + never + "\n", ""},
		p.app("deploy", second))
	refused := p.app("deploy", second)
	require.Equal(t, []any{1, ""}, []any{refused.code, refused.out})
	require.Contains(t, refused.errors, "already exists")

	require.Equal(t, outcome{0, `NAME  LATEST  DEPLOYED  STATUS  SINCE  WHY  DESCRIPTION
hello  v2  v2  waiting  MOMENT  ` + never + `  A component that answers HTTP requests
`, ""}, p.app("list"))
	require.Equal(t, outcome{0, `application hello in lattice default  waiting · waiting for a host  AGE, no bound
  why  never_observed: ` + never + `
  since  MOMENT
  looked  MOMENT; next when a host appears
  you can start a host in the lattice that suits
  see which hosts there are, and what they run: tidewait lattice show default
  try now: tidewait app nudge hello --lattice default
  give up: tidewait app undeploy hello --lattice default
  put  by US, MOMENT, version v1
  deploy  by US, MOMENT, version v1
  put  by US, MOMENT, version v2
  deploy  by US, MOMENT, version v2

KIND  NAME  STATUS  MESSAGE
SpreadScaler  hello-greeter  waiting  ` + never + `
LinkScaler  hello-httpserver -(wasi:http)-> hello-greeter  waiting  ` + never + `
SpreadScaler  hello-httpserver  waiting  ` + never + `
`, ""}, p.app("status", "hello"))
	require.Equal(t, outcome{0, `VERSION  DEPLOYED
v1  -
v2  yes

WHEN  ACT  VERSION  BY  NOTE
MOMENT  put  v1  US  -
MOMENT  deploy  v1  US  -
MOMENT  put  v2  US  -
MOMENT  deploy  v2  US  -
`, ""}, p.app("history", "hello"))

	got := p.must("app", "get", "hello", "v1")
	require.True(t, strings.HasPrefix(got, `apiVersion: core.oam.dev/v1beta1
kind: Application
metadata:
  name: hello
  annotations:
    description: A component that answers HTTP requests
    version: v1
spec:
  components:
    - name: greeter
      type: component
`), got)
	stored := filepath.Join(dir, "stored.yaml")
	require.NoError(t, os.WriteFile(stored, []byte(got), 0o600))
	require.Equal(t, outcome{0, stored + ": application hello is valid, 2 components\n", ""}, p.app("validate", stored))

	slow := p.app("deploy", "hello", "v1", "--wait", "--timeout", "1s")
	require.Equal(t, outcome{
		4, "deployed hello version v1 in lattice default\nMOMENT  hello is waiting: " + never + "\n",
		"tidewait: after 1s application hello is still waiting: " + never + "; it stays deployed: see it with `tidewait app status hello`\n",
	}, slow)

	undeployed := p.app("undeploy", "hello")
	require.Equal(t, outcome{0, undeployed.out, ""}, undeployed)
	require.Contains(t, undeployed.out, "hello")
	waitsAre(p)
	require.Equal(t, outcome{0, `VERSION  DEPLOYED
v1  -
v2  -

WHEN  ACT  VERSION  BY  NOTE
MOMENT  put  v1  US  -
MOMENT  deploy  v1  US  -
MOMENT  put  v2  US  -
MOMENT  deploy  v2  US  -
MOMENT  deploy  v1  US  -
MOMENT  undeploy  v1  US  -
`, ""}, p.app("history", "hello"))
	require.Equal(t, 0, p.app("delete", "hello", "v1").code)
	require.Contains(t, p.app("history", "hello").out, "VERSION  DEPLOYED\nv2  -\n\n")
	require.Contains(t, p.app("history", "hello").out, "MOMENT  delete  v1  US  -\n")
	require.Equal(t, 0, p.app("delete", "--all-undeployed").code)
	require.Equal(t, outcome{0, "no applications in lattice default\n", ""}, p.app("list"))
	require.Equal(t, 1, p.app("history", "hello").code)
	require.Equal(t, 0, p.app("delete", "hello").code, "what is not there is no error")
}

// waitsAre asserts what waits: who, kind and code of each line.
func waitsAre(p *product, want ...string) {
	p.t.Helper()
	var got []string
	for _, line := range strings.Split(masked(p.must("waits")), "\n")[1:] {
		if fields := strings.Split(line, "  "); len(fields) > 3 {
			got = append(got, strings.Join(fields[:3], "  "))
		}
	}
	require.Equal(p.t, want, got)
}

// wadmBucket is a NATS with the bucket of a wadm that is stopped. It takes larger
// messages than the product's.
func wadmBucket(t *testing.T, pairs map[string]string) (url string) {
	t.Helper()
	url = natstest.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir(), MaxPayload: 32 << 20}).ClientURL()
	js, err := jetstream.New(natstest.Connect(t, url))
	require.NoError(t, err)
	kv, err := js.CreateKeyValue(context.Background(), jetstream.KeyValueConfig{Bucket: "wadm_manifests"})
	require.NoError(t, err)
	for key, value := range pairs {
		_, err := kv.Put(context.Background(), key, []byte(value))
		require.NoError(t, err)
	}
	return url
}

// wadmApp is the value of an application's key, as wadm writes it.
func wadmApp(t *testing.T, deployed any, versions ...[2]string) string {
	t.Helper()
	var manifests []string
	for _, v := range versions {
		manifests = append(manifests, fmt.Sprintf("%q:%s", v[0], v[1]))
	}
	version, err := json.Marshal(deployed)
	require.NoError(t, err)
	return fmt.Sprintf(`{"manifests":{%s},"deployed_version":%s}`, strings.Join(manifests, ","), version)
}

const plainComponent = `{"name":"ui","type":"component","properties":{"image":"registry.example.com/ui:1"},"traits":[{"type":"spreadscaler","properties":{"instances":1}}]}`

// wadmManifest is a version with its manifest, as wadm stores it.
func wadmManifest(name, version, annotations, component string) [2]string {
	return [2]string{version, fmt.Sprintf(`{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":%q,"annotations":{%s"version":%q}},"spec":{"components":[%s]}}`,
		name, annotations, version, component)}
}

func TestImportOfApplications(t *testing.T) {
	t.Parallel()
	p := start(t)
	padded := func(version string, size int) [2]string {
		return wadmManifest("long", version, `"note":"`+strings.Repeat("x", size)+`",`, plainComponent)
	}
	const zeroWeights = `{"name":"ui","type":"component","properties":{"image":"registry.example.com/ui:1"},"traits":[{"type":"spreadscaler","properties":{"instances":1,"spread":[{"name":"x","requirements":{},"weight":0}]}}]}`
	from := wadmBucket(t, map[string]string{
		"default":      `["broken","consumer","long","platform","shop"]`,
		"default-shop": wadmApp(t, "v10", wadmManifest("shop", "v10", "", plainComponent), wadmManifest("shop", "v2", "", plainComponent)),
		"default-broken": wadmApp(t, "v2",
			wadmManifest("broken", "v1", "", plainComponent), wadmManifest("broken", "v2", "", zeroWeights)),
		"default-consumer": wadmApp(t, "v1",
			wadmManifest("consumer", "v1", "", `{"name":"ui","type":"component","properties":{"application":{"name":"platform","component":"ui"}}}`)),
		"default-platform": wadmApp(t, "v1",
			wadmManifest("platform", "v1", `"experimental.wasmcloud.dev/shared":"true",`, plainComponent)),
		// More than goes into one request, and a version that the product's NATS does not take at all.
		"default-long": wadmApp(t, "v1", padded("v1", 700<<10), padded("v2", 700<<10), padded("v3", 9<<20), padded("v4", 700<<10), padded("v5", 10)),
		"a-b":          `["c"]`,
		"a":            `["b-c"]`,
		"a-b-c":        wadmApp(t, "v1", wadmManifest("c", "v10", "", plainComponent), wadmManifest("b-c", "v1", "", plainComponent)),
	})
	table := `LATTICE  APPLICATION  VERSION  WHAT  DEPLOYED  WHY
a  b-c  v1  added  yes  -
a-b  c  v10  added  -  -
default  broken  v1  added  -  -
default  broken  v2  refused  not here  spec.components[0].traits[0].properties.spread: all weights are 0, so that no share can be computed; give one of them at least 1
default  consumer  v1  added  yes  -
default  long  v1  added  yes  -
default  long  v2  added  -  -
default  long  v3  refused  -  it is larger than NATS on ` + p.Stack.NATSURL + ` takes in a message, which is 8388608 bytes
default  long  v4  added  -  -
default  long  v5  added  -  -
default  platform  v1  added  yes  -
default  shop  v10  added  yes  -
default  shop  v2  added  -  -
`
	notes := "note: key a-b-c holds versions of c in lattice a-b and b-c in lattice a, whose keys are the same; each gets its own\n" +
		"tidewait: not brought: 2 versions, 1 deployment\n"
	require.Equal(t, outcome{1, table + "\nnothing is changed yet: do it with --apply\n", notes}, p.app("import", "--from", from))
	require.Equal(t, outcome{0, "no applications in lattice default\n", ""}, p.app("list"))
	require.Equal(t, outcome{1, table, notes}, p.app("import", "--from", from, "--apply"))

	require.Equal(t, outcome{0, `NAME  LATEST  DEPLOYED  STATUS  SINCE  WHY  DESCRIPTION
broken  v1  -  undeployed  -  -  -
consumer  v1  v1  waiting  MOMENT  ` + never + `  -
long  v5  v1  waiting  MOMENT  ` + never + `  -
platform  v1  v1  waiting  MOMENT  ` + never + `  -
shop  v2  v10  waiting  MOMENT  ` + never + `  -
`, ""}, p.app("list"))
	require.Equal(t, outcome{0, "VERSION  DEPLOYED\nv10  yes\nv2  -\n\nWHEN  ACT  VERSION  BY  NOTE\nMOMENT  deploy  v10  US  -\n", ""}, p.app("history", "shop"))
	require.Equal(t, outcome{0, "VERSION  DEPLOYED\nv1  yes\nv2  -\nv4  -\nv5  -\n\nWHEN  ACT  VERSION  BY  NOTE\nMOMENT  deploy  v1  US  -\n", ""}, p.app("history", "long"))
	require.Equal(t, outcome{0, "VERSION  DEPLOYED\nv1  yes\n\nWHEN  ACT  VERSION  BY  NOTE\nMOMENT  deploy  v1  US  -\n", ""}, p.app("history", "b-c", "--lattice", "a"))

	require.Equal(t, outcome{1, strings.ReplaceAll(table, "  added", "  kept"), notes}, p.app("import", "--from", from, "--apply"))

	// A conflict in the last of several requests keeps all of them from being stored.
	require.Equal(t, 0, p.app("delete", "long").code)
	require.Equal(t, 0, p.app("put", p.appFile(padded("v5", 11))).code)
	require.Equal(t, outcome{1, `LATTICE  APPLICATION  VERSION  WHAT  DEPLOYED  WHY
default  long  v1  conflict  not here  version "v5", which came after it, is stored already
default  long  v2  conflict  -  version "v5", which came after it, is stored already
default  long  v3  refused  -  it is larger than NATS on ` + p.Stack.NATSURL + ` takes in a message, which is 8388608 bytes
default  long  v4  conflict  -  version "v5", which came after it, is stored already
default  long  v5  conflict  -  a different manifest is stored under this version
`, "tidewait: not brought: 6 versions, 2 deployments\n"}, p.importOnly(from, "long"))
	require.Equal(t, outcome{0, "VERSION  DEPLOYED\nv5  -\n\nWHEN  ACT  VERSION  BY  NOTE\nMOMENT  deploy  v1  US  -\nMOMENT  delete  -  US  -\nMOMENT  put  v5  US  -\n", ""}, p.app("history", "long"))
}

// importOnly applies an import and keeps the lines about one application.
func (p *product) importOnly(from, name string) outcome {
	p.t.Helper()
	got := p.app("import", "--from", from, "--lattice", "default", "--apply")
	lines := strings.SplitAfter(got.out, "\n")
	got.out = lines[0]
	for _, line := range lines[1:] {
		if strings.HasPrefix(line, "default  "+name+"  ") {
			got.out += line
		}
	}
	return got
}

// appFile writes a version's manifest to a file.
func (p *product) appFile(version [2]string) string {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), "app.json")
	require.NoError(p.t, os.WriteFile(path, []byte(version[1]), 0o600))
	return path
}
