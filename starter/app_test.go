package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/wadm"
)

const goodApp = `apiVersion: core.oam.dev/v1beta1
kind: Application
metadata:
  name: shop
  annotations: {version: v1, description: a <shop>}
spec:
  components:
    - name: ui
      type: component
      properties: {image: "file://build/ui.wasm"}
      traits:
        - {type: spreadscaler, properties: {instances: 1}}
`

// replies answers requests on subject with the given texts, one after the other,
// the last one for ever, and records their bodies.
func (b *bus) replies(subject string, texts ...string) {
	b.t.Helper()
	_, err := b.conn.Subscribe(subject, func(msg *nats.Msg) {
		b.mu.Lock()
		defer b.mu.Unlock()
		_ = msg.Respond([]byte(texts[min(len(b.asked[subject]), len(texts)-1)]))
		b.asked[subject] = append(b.asked[subject], string(msg.Data))
	})
	require.NoError(b.t, err)
	require.NoError(b.t, b.conn.Flush())
}

func status(info string) string {
	return `{"result":"ok","message":"","status":{"status":` + info + `,"version":"","components":[]}}`
}

const (
	put      = "wadm.api.default.model.put"
	stored   = `{"result":"created","total_versions":1,"current_version":"v1","message":"stored","name":"shop"}`
	deployed = `{"result":"acknowledged","message":"deployed","name":"shop","version":"v1"}`
	waiting  = `{"type":"waiting","message":"no host of lattice default has been observed yet","reason":"never_observed","since":"2026-11-30T12:19:05Z"}`
)

func writtenApp(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestPutSendsTheNormalFormAndSaysWho(t *testing.T) {
	b := newBus(t)
	actors := make(chan string, 1)
	_, err := b.conn.Subscribe(put, func(msg *nats.Msg) { actors <- msg.Header.Get(wadm.HeaderActor) })
	require.NoError(t, err)
	b.replies(put, `{"result":"newversion","total_versions":2,"current_version":"v1","message":"","name":"shop",
		"warnings":[{"rule":"unknown-interface","path":"spec.components[0]","line":1,"message":"from the server"}]}`)
	path := writtenApp(t, goodApp)

	require.Equal(t,
		outcome{0, "stored shop version v1 in lattice default; it has 2 versions\n", "warning: spec.components[0]: from the server [unknown-interface]\n"},
		b.run("app", "put", path, "--actor", "bob"))
	require.Equal(t, "bob", <-actors)
	require.Equal(t, []string{`{"apiVersion":"core.oam.dev/v1beta1","kind":"Application","metadata":{"name":"shop",` +
		`"annotations":{"description":"a <shop>","version":"v1"}},"spec":{"components":[{"name":"ui","type":"component",` +
		`"properties":{"image":"file://` + filepath.Dir(path) + `/build/ui.wasm"},` +
		`"traits":[{"type":"spreadscaler","properties":{"instances":1}}]}]}}`}, b.requests(put))
}

// A document of standard input lies in the working directory.
func TestPutReadsStandardInput(t *testing.T) {
	b := newBus(t)
	b.replies(put, stored)
	here, err := os.Getwd()
	require.NoError(t, err)
	for i, args := range [][]string{{"app", "put"}, {"app", "put", "-"}} {
		got := tidewaitWith(context.Background(), goodApp, append(args, "--nats.url", b.url)...)
		require.Equal(t, outcome{0, "stored shop version v1 in lattice default; it has 1 version\n", ""}, got)
		require.Contains(t, b.requests(put)[i], `"file://`+here+`/build/ui.wasm"`)
	}
}

func TestWhatCannotBePutIsNotSent(t *testing.T) {
	path := writtenApp(t, strings.ReplaceAll(goodApp, "    - name: ui", "    - {name: ui, type: component, properties: {image: x}}\n    - name: ui"))
	for _, verb := range []string{"put", "deploy"} {
		got := tidewait("app", verb, path, "--nats.url", "nats://127.0.0.1:1")
		require.Equal(t, outcome{2, "", path + `:8:7: warning: spec.components[0]: component "ui" has no scaler and will never be started; add a trait of type spreadscaler [no-scaler]
` + path + `:9:7: error: spec.components[1].name: Duplicate component name in manifest: ui [duplicate-component]
tidewait: ` + path + " is not put: 1 error in it\n"}, got)
	}
}

func TestDeployOfADocumentDeploysTheVersionThatWasStored(t *testing.T) {
	b := newBus(t)
	b.replies(put, `{"result":"created","total_versions":1,"current_version":"01J","message":"","name":"shop"}`)
	b.replies("wadm.api.default.model.deploy.shop", `{"result":"acknowledged","message":"","name":"shop","version":"01J"}`)
	b.replies("wadm.api.default.model.status.shop", status(waiting))
	got := b.run("app", "deploy", writtenApp(t, strings.Replace(goodApp, "version: v1, ", "", 1)))
	require.Equal(t, outcome{0, `stored shop version 01J in lattice default; it has 1 version
deployed shop version 01J in lattice default
waiting: no host of lattice default has been observed yet
`, ""}, got)
	require.Equal(t, []string{`{"version":"01J"}`}, b.requests("wadm.api.default.model.deploy.shop"))
}

func TestDeployOfANameInEveryFormat(t *testing.T) {
	b := newBus(t)
	b.replies("wadm.api.east.model.deploy.shop", deployed)
	b.replies("wadm.api.east.model.status.shop", status(waiting))
	require.Equal(t, outcome{0, "deployed shop version v1 in lattice east\nwaiting: no host of lattice default has been observed yet\n", ""},
		b.run("app", "deploy", "shop", "--lattice", "east"))
	require.Equal(t, outcome{0, `deploy:
  result: acknowledged
  message: deployed
  name: shop
  version: v1
status:
  status:
    type: waiting
    message: no host of lattice default has been observed yet
    reason: never_observed
    since: "2026-11-30T12:19:05Z"
  version: ""
  components: []
`, ""}, b.run("app", "deploy", "shop", "v1", "--lattice", "east", "-o", "yaml"))
	require.Equal(t, []string{``, `{"version":"v1"}`}, b.requests("wadm.api.east.model.deploy.shop"))
}

func TestReplaceDeletesTheVersionFirst(t *testing.T) {
	b := newBus(t)
	b.replies("wadm.api.default.model.del.shop", `{"result":"deleted","message":"deleted v1","undeploy":true}`, `{"result":"error","message":"in use"}`)
	b.replies(put, stored)
	b.replies("wadm.api.default.model.deploy.shop", deployed)
	b.replies("wadm.api.default.model.status.shop", status(waiting))
	path := writtenApp(t, goodApp)
	rest := "stored shop version v1 in lattice default; it has 1 version\ndeployed shop version v1 in lattice default\n" +
		"waiting: no host of lattice default has been observed yet\n"
	require.Equal(t, outcome{0, "deleted v1\n" + rest, ""}, b.run("app", "deploy", path, "--replace"))
	require.Equal(t, outcome{0, rest, "tidewait: nothing was deleted first: in use\n"}, b.run("app", "deploy", path, "--replace"))
	require.Equal(t, []string{`{"version":"v1"}`, `{"version":"v1"}`}, b.requests("wadm.api.default.model.del.shop"))
}

func TestDeploymentsThatAreRefused(t *testing.T) {
	b := newBus(t)
	path := writtenApp(t, goodApp)
	b.replies(put, `{"message":"Manifest version v1 already exists","result":"error"}`, stored)
	b.replies("wadm.api.default.model.deploy.shop", `{"result":"error","message":"the id \"ui\" belongs to application other"}`)
	b.replies("wadm.api.default.model.deploy.nope", `{"result":"notfound","message":"no application called nope","name":"nope","version":null}`)
	require.Equal(t, outcome{1, "", "tidewait: Manifest version v1 already exists; name another version in the document, deploy the one that is stored with " +
		"`tidewait app deploy shop v1`, or put this document in its place with --replace\n"}, b.run("app", "deploy", path))
	got := b.run("app", "deploy", path)
	require.Equal(t, outcome{
		1, "stored shop version v1 in lattice default; it has 1 version\n",
		"tidewait: shop version v1 is stored, but not deployed: the id \"ui\" belongs to application other\n",
	}, got)
	require.Equal(t, outcome{1, "", "tidewait: no application called nope\n"}, b.run("app", "deploy", "nope"))
	// What was done is told to programs, too.
	require.Equal(t, `{
  "put": {
    "result": "created",
    "total_versions": 1,
    "current_version": "v1",
    "message": "stored",
    "name": "shop"
  }
}
`, b.run("app", "deploy", path, "-o", "json").out)
}

// unclocked takes the times off the lines of a command that waits.
func unclocked(t *testing.T, text string) string {
	t.Helper()
	clock := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\dZ  `)
	require.Regexp(t, clock, text)
	return clock.ReplaceAllString(text, "")
}

// news publishes a status whenever one has been asked for, so that a command
// which waits looks again at once. What is published is old, and counts for
// nothing.
func (b *bus) news(name string) {
	b.t.Helper()
	_, err := b.conn.Subscribe("wadm.api.default.model.status."+name, func(*nats.Msg) {
		_ = b.conn.Publish("wadm.status.default."+name, []byte(`{"status":{"type":"deployed"}}`))
	})
	require.NoError(b.t, err)
	require.NoError(b.t, b.conn.Flush())
}

func TestDeployWaitsUntilItRuns(t *testing.T) {
	b := newBus(t)
	b.replies("wadm.api.default.model.deploy.shop", deployed)
	b.replies("wadm.api.default.model.status.shop", status(waiting), status(waiting), status(`{"type":"reconciling","message":"scaling"}`), status(`{"type":"deployed"}`))
	b.news("shop")
	got := b.run("app", "deploy", "shop", "--wait")
	require.Equal(t, outcome{0, "", ""}, outcome{got.code, "", got.errors})
	first, rest, _ := strings.Cut(got.out, "\n")
	require.Equal(t, "deployed shop version v1 in lattice default", first)
	require.Equal(t, `shop is waiting: no host of lattice default has been observed yet
shop is reconciling: scaling
shop is deployed
`, unclocked(t, rest))
}

func TestEndsOfAWaitThatIsNone(t *testing.T) {
	b := newBus(t)
	for _, name := range []string{"failing", "gone", "deleted", "slow"} {
		b.replies("wadm.api.default.model.deploy."+name, `{"result":"acknowledged","message":"","name":"`+name+`","version":"v1"}`)
	}
	b.replies("wadm.api.default.model.status.failing", status(`{"type":"failed","message":"no such image"}`))
	b.replies("wadm.api.default.model.status.gone", status(`{"type":"undeployed"}`))
	b.replies("wadm.api.default.model.versions.gone", `{"result":"success","message":"","versions":[{"version":"v1","deployed":false}]}`)
	b.replies("wadm.api.default.model.status.deleted", status(`{"type":"undeployed"}`))
	b.replies("wadm.api.default.model.versions.deleted", `{"result":"notfound","message":"no such application","versions":[]}`)
	b.replies("wadm.api.default.model.status.slow", status(`{"type":"undeployed"}`))
	b.replies("wadm.api.default.model.versions.slow", `{"result":"success","message":"","versions":[{"version":"v1","deployed":true}]}`)
	for _, test := range []struct {
		name, timeout, text string
		code                int
	}{
		{"failing", "1m", "tidewait: application failing has failed: no such image; it is tried again: see it with `tidewait app status failing`\n", 1},
		{"gone", "1m", "tidewait: application gone was undeployed while this waited for it\n", 1},
		{"deleted", "1m", "tidewait: application deleted was undeployed while this waited for it\n", 1},
		{"slow", "300ms", "tidewait: after 300ms application slow is still undeployed; it stays deployed: see it with `tidewait app status slow`\n", 4},
	} {
		got := b.run("app", "deploy", test.name, "--wait", "--timeout", test.timeout)
		require.Equal(t, outcome{test.code, got.out, test.text}, got)
	}
	// With structured output, progress is beside it.
	got := b.run("app", "deploy", "failing", "--wait", "-o", "json")
	require.Contains(t, got.out, `"message": "no such image"`)
	require.Contains(t, unclocked(t, got.errors), "failing is failed: no such image\ntidewait: application failing has failed")
}

func TestAnInterruptedWaitLeavesTheApplicationDeployed(t *testing.T) {
	b := newBus(t)
	ctx, cancel := context.WithCancel(context.Background())
	b.replies("wadm.api.default.model.deploy.shop", deployed)
	b.replies("wadm.api.default.model.status.shop", status(waiting))
	b.news("shop")
	looks := 0
	_, err := b.conn.Subscribe("wadm.api.default.model.status.shop", func(*nats.Msg) {
		if looks++; looks == 3 {
			cancel()
		}
	})
	require.NoError(t, err)
	require.NoError(t, b.conn.Flush())
	got := tidewaitWith(ctx, "", "app", "deploy", "shop", "--wait", "--nats.url", b.url)
	require.Equal(t, 130, got.code)
	require.Equal(t, "tidewait: interrupted; application shop stays deployed: see it with `tidewait app status shop`, or end it with `tidewait app undeploy shop`\n", got.errors)
}

// summary is an application of a list on the wire.
func summary(name, version, deployed, info string) string {
	return fmt.Sprintf(`{"name":%q,"version":%q,"description":null,"deployed_version":%s,"detailed_status":{"status":%s,"version":"","components":[]},
		"status":"undeployed","status_message":""}`, name, version, deployed, info)
}

func list(models ...string) string {
	return `{"result":"success","message":"","models":[` + strings.Join(models, ",") + `]}`
}

func TestListApplications(t *testing.T) {
	b := newBus(t)
	b.replies("wadm.api.default.model.get", list(
		summary("a", "v2", `"v1"`, `{"type":"failed","message":"no such image"}`),
		summary("b", "", `null`, `{"type":"undeployed"}`),
	))
	b.replies("wadm.api.empty.model.get", list())
	b.replies("wadm.api.one.model.get", list(summary("a", "v2", `"v1"`, `{"type":"failed","message":"no such image"}`)))
	require.Equal(t, outcome{0, `NAME  LATEST  DEPLOYED  STATUS      SINCE  WHY            DESCRIPTION
a     v2      v1        failed      -      no such image  -
b     ""      -         undeployed  -      -              -
`, ""}, b.run("app", "list"))
	require.Equal(t, b.run("app", "list"), b.run("app", "get"))
	require.Equal(t, outcome{0, "no applications in lattice empty\n", ""}, b.run("app", "list", "--lattice", "empty"))
	require.Equal(t, outcome{0, "[]\n", ""}, b.run("app", "list", "--lattice", "empty", "-o", "json"))
	require.Equal(t, outcome{0, `- name: a
  version: v2
  description: null
  deployed_version: v1
  detailed_status:
    status:
      type: failed
      message: no such image
    version: ""
    components: []
  status: undeployed
  status_message: ""
`, ""}, b.run("app", "list", "--lattice", "one", "-o", "yaml"))
}

func TestWatchedListPrintsChanges(t *testing.T) {
	for _, args := range [][]string{{"--watch=100ms"}, {"--watch", "100ms"}, {"--watch", "100"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			b := newBus(t)
			ctx, cancel := context.WithCancel(context.Background())
			b.replies("wadm.api.default.model.get",
				list(summary("a", "v1", `null`, `{"type":"undeployed"}`)),
				list(summary("a", "v1", `"v1"`, waiting)),
				list(summary("a", "v1", `"v1"`, waiting), summary("b", "v1", `null`, `{"type":"undeployed"}`)),
				list(summary("b", "v1", `null`, `{"type":"undeployed"}`)),
			)
			looks := 0
			_, err := b.conn.Subscribe("wadm.api.default.model.get", func(*nats.Msg) {
				if looks++; looks == 5 {
					cancel()
				}
			})
			require.NoError(t, err)
			require.NoError(t, b.conn.Flush())
			got := tidewaitWith(ctx, "", append([]string{"app", "list", "--nats.url", b.url}, args...)...)
			require.Equal(t, outcome{130, got.out, "tidewait: interrupted\n"}, got)
			require.Equal(t, `a is undeployed, latest version v1, none deployed
a is now waiting: no host of lattice default has been observed yet, latest version v1, deployed v1
b is undeployed, latest version v1, none deployed
a is deleted
`, unclocked(t, got.out))
		})
	}
}

func TestGetPrintsTheStoredDocument(t *testing.T) {
	b := newBus(t)
	b.replies("wadm.api.default.model.get.shop", `{"result":"success","message":"","manifest":{"kind":"Application","apiVersion":"v1","metadata":{"name":"shop","annotations":{"version":"007"}},"spec":{"components":[]}}}`)
	b.replies("wadm.api.default.model.get.nope", `{"result":"notfound","message":"no application called nope"}`)
	require.Equal(t, outcome{0, `kind: Application
apiVersion: v1
metadata:
  name: shop
  annotations:
    version: "007"
spec:
  components: []
`, ""}, b.run("app", "get", "shop"))
	require.Equal(t, outcome{0, `{
  "kind": "Application",
  "apiVersion": "v1",
  "metadata": {
    "name": "shop",
    "annotations": {
      "version": "007"
    }
  },
  "spec": {
    "components": []
  }
}
`, ""}, b.run("app", "get", "shop", "007", "-o", "json"))
	require.Equal(t, []string{``, `{"version":"007"}`}, b.requests("wadm.api.default.model.get.shop"))
	require.Equal(t, outcome{1, "", "tidewait: no application called nope\n"}, b.run("app", "get", "nope"))
}

func TestStatusOfAnApplication(t *testing.T) {
	b := newBus(t)
	reply := `{"result":"ok","message":"status of shop","status":{"status":{"type":"failed","message":"no such image"},` +
		`"scalers":[{"id":"1","kind":"SpreadScaler","name":"shop-ui","status":{"type":"failed","message":"no such image"}},` +
		`{"id":"2","kind":"LinkScaler","name":"shop-web -(wasi:http)-\u003e shop-ui","status":{"type":"deployed"}}],"version":"","components":[]}}`
	b.replies("wadm.api.default.model.status.shop", reply)
	require.Equal(t, outcome{0, `application shop in lattice default   failed
  why     no such image

KIND          NAME                             STATUS    MESSAGE
SpreadScaler  shop-ui                          failed    no such image
LinkScaler    shop-web -(wasi:http)-> shop-ui  deployed  -
`, ""}, b.run("app", "status", "shop"))
	require.JSONEq(t, reply, b.run("app", "status", "shop", "-o", "json").out)
}

func TestHistoryOfAnApplication(t *testing.T) {
	b := newBus(t)
	b.replies("wadm.api.default.model.versions.shop", `{"result":"success","message":"","versions":[{"version":"v10","deployed":false},{"version":"v2","deployed":true}],"total":5}`)
	require.Equal(t, outcome{
		0, "VERSION  DEPLOYED\nv10      -\nv2       yes\n",
		"tidewait: 3 versions left out: with them the reply would have been too large\n",
	}, b.run("app", "history", "shop"))
}

func TestUndeployAndDelete(t *testing.T) {
	b := newBus(t)
	b.replies("wadm.api.default.model.undeploy.shop", `{"result":"acknowledged","message":"undeployed shop","name":"shop","version":null}`)
	b.replies("wadm.api.default.model.del.shop",
		`{"result":"deleted","message":"deleted shop v1","undeploy":true,"warnings":[{"rule":"shared","message":"others use it"}]}`,
		`{"result":"noop","message":"shop has no version v1","undeploy":false}`)
	path := writtenApp(t, goodApp)
	require.Equal(t, outcome{0, "undeployed shop\n", ""}, b.run("app", "undeploy", "shop"))
	require.Equal(t, outcome{0, "undeployed shop\n", ""}, b.run("app", "undeploy", path))
	require.Equal(t, outcome{0, "deleted shop v1\n", "warning: others use it [shared]\n"}, b.run("app", "delete", path))
	require.Equal(t, outcome{0, "shop has no version v1\n", ""}, b.run("app", "delete", "shop", "v1"))
	b.run("app", "delete", "shop")
	require.Equal(t, []string{`{"version":"v1"}`, `{"version":"v1"}`, ``}, b.requests("wadm.api.default.model.del.shop"))
}

func TestUndeployAndDeleteAll(t *testing.T) {
	b := newBus(t)
	b.replies("wadm.api.default.model.get", list(
		summary("a", "v1", `"v1"`, waiting), summary("b", "v1", `null`, `{"type":"undeployed"}`),
		summary("c", "v1", `""`, waiting), summary("d", "v1", `null`, `{"type":"undeployed"}`),
	))
	b.replies("wadm.api.none.model.get", list())
	b.replies("wadm.api.default.model.undeploy.a", `{"result":"error","message":"others use it"}`)
	b.replies("wadm.api.default.model.undeploy.c", `{"result":"acknowledged","message":"undeployed c","name":"c","version":null}`)
	for _, name := range []string{"b", "d"} {
		b.replies("wadm.api.default.model.del."+name, `{"result":"deleted","message":"deleted `+name+`","undeploy":true}`)
	}
	require.Equal(t, outcome{1, "undeployed c\n", "tidewait: application a is not undeployed: others use it\ntidewait: 1 of 2 applications not undeployed\n"},
		b.run("app", "undeploy", "--all"))
	require.Equal(t, outcome{0, "deleted b\ndeleted d\n", ""}, b.run("app", "delete", "--all-undeployed"))
	require.Equal(t, []string{``}, b.requests("wadm.api.default.model.del.b"))
	require.JSONEq(t, `[{"name":"b","result":"deleted","message":"deleted b","undeploy":true},{"name":"d","result":"deleted","message":"deleted d","undeploy":true}]`,
		b.run("app", "delete", "--all-undeployed", "-o", "json").out)
	require.Equal(t, outcome{0, "no application of lattice none is deployed\n", ""}, b.run("app", "undeploy", "--all", "--lattice", "none"))
}

func TestWhatApplicationCommandsDoNotTake(t *testing.T) {
	path := writtenApp(t, goodApp)
	for _, test := range []struct {
		args []string
		text string
	}{
		{[]string{"app", "list", "shop"}, "tidewait: list takes no \"shop\"; look at one application with `tidewait app status`, or give --lattice\n"},
		{[]string{"app", "list", "--watch", "never"}, "tidewait: --watch never is no interval; give 100ms or more, such as 5s\n"},
		{[]string{"app", "list", "--watch=1ms"}, "tidewait: --watch 1ms is no interval; give 100ms or more, such as 5s\n"},
		{[]string{"app", "list", "--lattice", "a.b"}, "tidewait: setting refused: wadm.lattice = \"a.b\" (--lattice): want one token of a NATS subject, such as default\n"},
		{[]string{"app", "status", "a.b"}, "tidewait: \"a.b\" is not the name of an application: it has letters, digits, - and _ only\n"},
		{[]string{"app", "get", "-"}, "tidewait: \"-\" is not the name of an application: it has letters, digits, - and _ only\n"},
		{[]string{"app", "deploy", path, "v1"}, "tidewait: " + path + " is a document, which says its version; leave out \"v1\"\n"},
		{[]string{"app", "delete", path, "v1"}, "tidewait: " + path + " is a document, which says its version; leave out \"v1\"\n"},
		{[]string{"app", "deploy", "shop", "--replace"}, "tidewait: --replace puts a document in place of its version; give the document's file instead of shop\n"},
		{[]string{"app", "deploy", "shop", "--timeout", "5s"}, "tidewait: --timeout 5s is how long --wait waits; give both, and a time such as 5m\n"},
		{[]string{"app", "undeploy"}, "tidewait: give either an application or --all\n"},
		{[]string{"app", "undeploy", "shop", "--all"}, "tidewait: give either an application or --all\n"},
		{[]string{"app", "delete"}, "tidewait: give either an application or --all-undeployed\n"},
		{[]string{"app", "undeploy", "/nonexistent/app.yaml"}, "tidewait: cannot read the application document: open /nonexistent/app.yaml: no such file or directory\n"},
		{[]string{"app", "redeploy"}, "tidewait: unknown command \"redeploy\" for \"tidewait app\"; did you mean deploy or undeploy?; see `tidewait app --help`\n"},
	} {
		require.Equal(t, outcome{2, "", test.text}, tidewait(append(test.args, "--nats.url", "nats://127.0.0.1:1")...), "%q", test.args)
	}
}

func TestApplicationsWithoutAServer(t *testing.T) {
	b := newBus(t)
	require.Equal(t, outcome{5, "", "tidewait: nobody answers the API of applications (wadm.api.>) on " + b.url +
		"; start an engine with `tidewait dev` or `tidewait-worker run --roles engine`, or set nats.url\n"}, b.run("app", "list"))
	got := tidewait("app", "status", "shop", "--nats.url", "nats://"+closedPort(t))
	require.Equal(t, 5, got.code)
	require.Contains(t, got.errors, "tidewait: cannot reach NATS at nats://127.0.0.1:")
}

func TestTheSettingsLatticeAndPrefixAreAsked(t *testing.T) {
	b := newBus(t)
	b.replies("my.wadm.west.model.get", list())
	t.Setenv("TIDEWAIT_WADM_LATTICE", "west")
	t.Setenv("TIDEWAIT_WADM_API_PREFIX", "my.wadm")
	require.Equal(t, outcome{0, "no applications in lattice west\n", ""}, b.run("app", "list"))
}

func TestCompletionOffersApplications(t *testing.T) {
	b := newBus(t)
	b.replies("wadm.api.east.model.get", list(summary("a", "v1", `null`, `{"type":"undeployed"}`), summary("b", "v1", `null`, `{"type":"undeployed"}`)))
	t.Setenv("TIDEWAIT_NATS_URL", b.url)
	require.Equal(t, "a\nb\n:4\n", tidewait("__complete", "app", "status", "--lattice", "east", "").out)
	require.Equal(t, "a\nb\n:0\n", tidewait("__complete", "app", "deploy", "--lattice", "east", "").out)
	require.Equal(t, ":4\n", tidewait("__complete", "app", "status", "").out)
}
