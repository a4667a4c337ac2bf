package simhost_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"tidewait/internal/simhost"
)

// exchange is one request of a recording and what was heard after it.
type exchange struct {
	line    int
	subject string
	body    string
	heard   []string // replies and events, in order
}

func readRecording(t *testing.T, name string) []exchange {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	require.NoError(t, err)
	var all []exchange
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "-> "):
			all = append(all, exchange{line: i + 1, subject: line[3:]})
		case strings.HasPrefix(line, "<- "), strings.HasPrefix(line, "** "):
			last := &all[len(all)-1]
			last.heard = append(last.heard, line)
		case line != "" && line[0] != '#':
			all[len(all)-1].body = line
		}
	}
	return all
}

// signed says under which keys the lab's artifacts were signed.
var (
	helloSigned = &simhost.Claims{
		Subject: "MBRDD7XWT3GXP325DXR2D3UOE45SWRUAROXCTHJBKO5GNNM3T6RNJMCE",
		Issuer:  "ABH7AKQ4UCV74K73KLW7SQHWZMVYB3MM7TYUVFQZ7JNFBTU5XIJGA2T7",
		Name:    "Hello Signed", Version: "0.4.2", Revision: 7, Alias: "lab/hello",
		Tags: []string{"wasmcloud.com/experimental", "lab"},
	}
	httpServer = &simhost.Claims{
		Subject: "VBEU2RHKCRJZO3WP3ALMGIBEXZ6BC7R56DLDMPLTDVZX5EB3BQIFFWNB",
		Issuer:  "ABJBUJHEAHWHOC2AAGK4WXCBNZC4IHGLCQGSPY476RX6PLBIHCJYMVBG",
		Name:    "HTTP Server", Version: "0.27.0", Revision: 3,
	}
	sleeper = &simhost.Claims{
		Subject: "VSLEEPER", Issuer: "AADYPATP7ZZP4SFK7ULGIG7WGVDRZ7EMOJEKVZSEOGT555VZFY2NRCS3",
		Name: "Sleeper", Version: "0.1.0", Revision: 1,
	}
	sleeperNoVersion = &simhost.Claims{
		Subject: "VNOVERSION", Issuer: "ADQ4B2NCLQOXVLNRGHZEU462L6R2ZAIL2S5SCZF6VDVJQMB7XWKOHZTW", Name: "Sleeper",
	}
	crasher = &simhost.Claims{
		Subject: "VCRASHER", Issuer: "ACKPLZFJNCZX6KZMEE6OMEYPCNSKEJNZM3P7PVXIN5JXVOXRV6CIQXBB",
		Name: "Crasher", Version: "0.1.0", Revision: 1,
	}
)

// artifacts are what the recorded hosts found under the references.
var artifacts = []simhost.Rule{
	{Image: "/images/nofile.wasm", Fetch: simhost.NoSuchFile},
	{Image: "/images/nofile.par", Fetch: simhost.NoSuchFile},
	{Image: "/images/garbage.wasm", Command: "component.scale", Invalid: simhost.NotWasm},
	{Image: "/images/garbage.wasm", Command: "component.update", Invalid: simhost.NotWasm},
	{Image: "/images/garbage.wasm", Command: "provider.start", Fetch: simhost.NotAnArchive},
	{Image: "/images/hello-a.wasm", Command: "provider.start", Fetch: simhost.NotAnArchive},
	{Image: "/images/hello-signed.wasm", Claims: helloSigned},
	{Image: "/images/hello-expired.wasm", Invalid: "token expired at `3m ago`"},
	{Image: "/images/http-server.par", Claims: httpServer},
	{Image: "/images/sleeper.par", Claims: sleeper},
	{Image: "/images/sleeper-nover.par", Claims: sleeperNoVersion},
	{Image: "/images/crasher.par", Claims: crasher},
	{Image: "hello-a.wasm", Fetch: simhost.NoSuchRegistry},
	{Image: "shop/api:1.4.0", Fetch: simhost.NoSuchRegistry},
	{Image: "registry.invalid/*", Fetch: simhost.NoSuchRegistry},
	{Image: "registry.invalid:1/*", Fetch: simhost.ConnectionRefused},
	{Image: "registry.example.com/providers/*", Fetch: simhost.NoSuchRegistry},
	{Image: "registry.example.com/prov/*", Claims: httpServer},
	{Image: "registry.example.com/slowprov/*", Claims: httpServer},
	{Image: "registry.example.com/missing/*", Fetch: simhost.ManifestUnknown},
	{Image: "registry.example.com/noname/*", Fetch: simhost.NameUnknown},
	{Image: "registry.example.com/denied/*", Fetch: simhost.Unauthorized},
	{Image: "registry.example.com/forbidden/*", Fetch: simhost.Denied},
	{Image: "registry.example.com/limited/*", Fetch: simhost.RateLimited},
	{Image: "registry.example.com/broken/*", Fetch: simhost.RegistryBroken},
	{Image: "registry.example.com/badmedia/*", Fetch: simhost.WrongMediaType},
	{Image: "registry.example.com/garbage/*", Invalid: simhost.NotWasm},
}

// recordings are the files in testdata and what was so before each of them.
var recordings = []struct {
	name     string
	alone    bool // only the first host was there
	first    simhost.HostSpec
	rules    []simhost.Rule
	commands [][2]string
}{
	{name: "queries"},
	{name: "config"},
	{name: "links"},
	{name: "labels"},
	{name: "components", commands: [][2]string{{"label.del.$H1", `{"key":"hostcore.osfamily"}`}}},
	{name: "failures"},
	{name: "updates"},
	{name: "registry"},
	{name: "auctions"},
	{name: "providers"},
	{name: "stop", alone: true},
	{
		name: "options", alone: true, first: simhost.HostSpec{Builtins: true, NoComponentAuctions: true},
		rules: []simhost.Rule{
			{ID: "pol", Fail: "Policy denied request to scale component `pol`: `\"not on my host\"`"},
			{
				ID: "one", Command: "provider.start",
				Fail: "policy denied request to start provider `01a22c99-7901-8eae-efc1-27bc90c1caca`: `Some(\"not on my host\")`",
			},
		},
	},
}

// TestRecordings sends what was sent to real hosts, and hears what was heard of them.
func TestRecordings(t *testing.T) {
	for _, r := range recordings {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t, simhost.Options{Version: "1.9.2", Heartbeat: 1000 * time.Hour})
			w.l.Script(artifacts...)
			w.l.Script(r.rules...)
			r.first.Name, r.first.Labels = "first", map[string]string{"zone": "eu"}
			hosts := []*simhost.Host{w.start(r.first)}
			words := strings.NewReplacer("$H1", hosts[0].ID())
			if !r.alone {
				hosts = append(hosts, w.start(simhost.HostSpec{Name: "second", Labels: map[string]string{"tier": "gold", "zone": "us"}}))
				words = strings.NewReplacer("$H1", hosts[0].ID(), "$H2", hosts[1].ID())
			}
			w.settle(hosts[0])
			for _, c := range r.commands {
				w.do(hosts[0], words.Replace(c[0]), words.Replace(c[1]))
			}
			for _, x := range readRecording(t, r.name) {
				heard := w.replay(x, words)
				require.Equal(t, canonical(x.subject, x.heard), canonical(x.subject, mask(heard, hosts, w.nc)),
					"testdata/%s.txt:%d: %s %s", r.name, x.line, x.subject, x.body)
			}
		})
	}
}

var annotationsMark = regexp.MustCompile(`\$ANN\(([^)]+)\)`)

const annotated = `{"wasmcloud.dev/appspec":"shop-front","wasmcloud.dev/managed-by":"wadm","wasmcloud.dev/scaler":"$1","wasmcloud.dev/spread_name":"default"}`

// replay sends a request and returns what is heard: of living hosts all, of the
// others as much as was recorded.
func (w *world) replay(x exchange, words *strings.Replacer) []string {
	w.t.Helper()
	body := words.Replace(annotationsMark.ReplaceAllString(x.body, annotated))
	require.NoError(w.t, w.nc.PublishRequest(words.Replace(x.subject), w.inbox+".reply", []byte(body)))
	var heard []*nats.Msg
	if hosts := w.l.Hosts(); len(hosts) > 0 && !strings.Contains(x.subject, ".host.stop.") {
		heard = w.settle(hosts[0])
		w.clock.Advance(time.Second / 2)
		heard = append(heard, w.settle(hosts[0])...)
	} else {
		for range x.heard {
			heard = append(heard, w.next())
		}
	}
	heard = slices.DeleteFunc(heard, func(m *nats.Msg) bool { return strings.Contains(m.Subject, ".health_check_") })
	if len(heard) == 0 {
		return []string{"<- silence"}
	}
	lines := w.lines(heard)
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "<- ") }) {
		lines = append(lines, "<- silence")
	}
	return lines
}

var (
	uptime  = regexp.MustCompile(`"uptime_human":"[^"]*","uptime_seconds":\d+`)
	applied = regexp.MustCompile(`\{"wasmcloud\.dev/appspec":"shop-front","wasmcloud\.dev/managed-by":"wadm","wasmcloud\.dev/scaler":"([^"]+)","wasmcloud\.dev/spread_name":"default"\}`)
)

// mask puts placeholders where recordings have them.
func mask(lines []string, hosts []*simhost.Host, nc *nats.Conn) []string {
	pairs := []string{nc.ConnectedUrl(), "$NATS", `"friendly_name":"first"`, `"friendly_name":"$NAME"`, `"friendly_name":"second"`, `"friendly_name":"$NAME"`}
	for i, h := range hosts {
		pairs = append(pairs, h.ID(), []string{"$H1", "$H2"}[i])
	}
	words := strings.NewReplacer(pairs...)
	masked := make([]string, len(lines))
	for i, line := range lines {
		line = applied.ReplaceAllString(words.Replace(line), "$$ANN($1)")
		masked[i] = uptime.ReplaceAllString(line, `"uptime_human":"$$UP","uptime_seconds":$$UP`)
	}
	return masked
}

// canonical removes the order that real hosts leave to chance: of the replies of
// several hosts, and of the entries in their maps.
func canonical(subject string, lines []string) []string {
	lines = slices.Clone(lines)
	replies := 0
	for i, line := range lines {
		if !strings.HasPrefix(line, "<- ") {
			continue
		}
		replies++
		switch {
		case strings.Contains(subject, ".config.get."), strings.HasSuffix(subject, ".claims.get"):
			lines[i] = withSortedKeys(line)
		case strings.HasSuffix(subject, ".link.get"):
			lines[i] = withSortedList(line, `"response":[`, `]}`)
		case strings.Contains(subject, ".host.get."):
			lines[i] = withSortedList(line, `"components":[`, `],"providers"`)
		}
	}
	if replies == len(lines) && replies > 1 {
		slices.Sort(lines)
	}
	return lines
}

func withSortedKeys(line string) string {
	var reply any
	if json.Unmarshal([]byte(strings.TrimPrefix(line, "<- ")), &reply) != nil {
		return line
	}
	text, err := json.Marshal(reply)
	if err != nil {
		return line
	}
	return string(text)
}

// withSortedList sorts the list between two texts by what its entries are told
// apart by; the links of one source keep their order.
func withSortedList(line, opening, closing string) string {
	before, rest, _ := strings.Cut(line, opening)
	end := strings.LastIndex(rest, closing)
	if end < 0 {
		return line
	}
	quoted := annotationsMark.ReplaceAllString(rest[:end], `"$0"`)
	var list []json.RawMessage
	if json.Unmarshal([]byte("["+quoted+"]"), &list) != nil {
		return line
	}
	slices.SortStableFunc(list, func(a, b json.RawMessage) int { return strings.Compare(sortKey(a), sortKey(b)) })
	entries := make([]string, len(list))
	for i, raw := range list {
		entries[i] = string(raw)
	}
	return before + opening + strings.Join(entries, ",") + rest[end:]
}

func sortKey(entry json.RawMessage) string {
	var key struct {
		ID     string `json:"id"`
		Source string `json:"source_id"`
	}
	if json.Unmarshal(entry, &key) != nil {
		return string(entry)
	}
	return key.ID + key.Source
}
