package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tidewait/internal/devstack"
	"tidewait/internal/devstack/devstacktest"
	"tidewait/internal/local"
)

// words are what a mission says that nobody else does, by what it is.
func words() map[string]string {
	found := map[string]string{}
	for _, what := range []string{"command", "variable", "value", "label", "failure", "actor"} {
		found[what] = strings.ReplaceAll(random("word"+what), "-", "")
	}
	return found
}

// wordy is a mission that says them, and fails in its second phase with one of them.
func wordy(name string, w map[string]string) missionDoc {
	return missionDoc{name: name, phases: []phaseDoc{
		{name: "work", script: ": " + w["command"] + "; echo done > out.txt", extra: "env: {" + w["variable"] + ": " + w["value"] + "}\nrequires: {labels: {" + w["label"] + ": here}}"},
		{name: "fails", extra: "run: [./" + w["failure"] + "]"},
	}}
}

// TestEncryption turns encryption on while a mission is open, and looks for what the
// next one says in all that Temporal has, where the same words of one before are.
func TestEncryption(t *testing.T) {
	long(t, 60*time.Second)
	settings := filepath.Join(t.TempDir(), "tidewait.yaml")
	require.NoError(t, os.WriteFile(settings, nil, 0o600))
	p := startStack(t, devstack.Options{UI: true, Codec: true}, "TIDEWAIT_CONFIG="+settings)
	plain, secret := words(), words()
	p.node("TIDEWAIT_NODE_LABELS=" + plain["label"] + "=here," + secret["label"] + "=here")
	p.launchesAndFails("plain-work", plain)
	p.launch(missionDoc{name: "open", phases: []phaseDoc{{name: "held", extra: "hold: true", script: "true"}}})
	require.Equal(t, "hold", p.waiting("open").Kind)

	p.encrypts(settings)
	p.refusesWhoHasNoKey()
	p.must("phase", "release", "open", "held")
	require.Equal(t, "succeeded", p.ended("open").Status, "what was open in plain text goes on")
	p.launchesAndFails("secret-work", secret)

	shown := p.rawHistory("mission.secret-work", "phase.secret-work.work", "phase.secret-work.fails")
	control := p.rawHistory("mission.plain-work", "phase.plain-work.work", "phase.plain-work.fails")
	for what := range plain {
		require.Contains(t, string(control), plain[what], "the control: the search finds the %s", what)
		require.NotContains(t, string(shown), secret[what], "the %s is in a history", what)
	}
	require.Contains(t, string(shown), "encryption-key-id")
	p.filesOfTemporal(plain, secret)
	p.showsWithItsCodecServer(secret)
	p.nothingLeft()
}

// launchesAndFails runs a mission that says words.
func (p *product) launchesAndFails(name string, w map[string]string) {
	p.t.Helper()
	_, errs, code := p.tidewait("mission", "launch", "--wait", "--actor", w["actor"], p.write(wordy(name, w)))
	require.Equal(p.t, 1, code, errs)
	require.Contains(p.t, p.show(name).Failure, w["failure"])
	require.Equal(p.t, "succeeded", p.show(name).PhaseList[0].Status)
}

// encrypts gives the product a key and starts all of it again.
func (p *product) encrypts(settings string) {
	p.t.Helper()
	key := make([]byte, 32)
	rand.Read(key)
	path := filepath.Join(p.t.TempDir(), "k1")
	require.NoError(p.t, os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600))
	require.NoError(p.t, os.WriteFile(settings, []byte(fmt.Sprintf("temporal: {encryption: all, encryption_keys: [%s]}\n", path)), 0o600))
	for _, w := range []*local.Worker{p.agent, p.gateway, p.engine} {
		require.NoError(p.t, w.Stop())
	}
	for _, w := range []*local.Worker{p.engine, p.gateway, p.agent} {
		require.NoError(p.t, w.Start(p.t.Context()))
	}
	log, err := os.ReadFile(p.engine.LogPath())
	require.NoError(p.t, err)
	require.Contains(p.t, string(log), "payloads are encrypted, and the namespace does not say so")
	require.Contains(p.t, p.must("setup"), "payloads are encrypted with key k1")
}

// refusesWhoHasNoKey starts a node, launches and signals with the settings from before.
func (p *product) refusesWhoHasNoKey() {
	p.t.Helper()
	const refusal = `namespace default is encrypted with key "k1", and this process has none: add that key to temporal.encryption_keys`
	empty := filepath.Join(p.t.TempDir(), "empty.yaml")
	require.NoError(p.t, os.WriteFile(empty, nil, 0o600))
	_, err := p.StartNode(p.t.Context(), "n2", "TIDEWAIT_NODE_BACKENDS=process", "TIDEWAIT_CONFIG="+empty)
	require.ErrorContains(p.t, err, refusal)
	for _, args := range [][]string{
		{"mission", "launch", p.write(missionDoc{name: "bare", phases: []phaseDoc{{name: "work", script: "true"}}})},
		{"phase", "release", "open", "held"},
	} {
		_, errs, code := p.tidewait(append(args, "--config", empty)...)
		require.Equal(p.t, 2, code, errs)
		require.Equal(p.t, "tidewait: "+refusal+"\n", errs)
	}
}

// rawHistory is what the server has of some workflows.
func (p *product) rawHistory(ids ...string) []byte {
	p.t.Helper()
	var all []byte
	for _, id := range ids {
		desc, err := p.temporal.DescribeWorkflow(context.Background(), id, "")
		require.NoError(p.t, err)
		raw, err := proto.Marshal(desc.RawResponse)
		require.NoError(p.t, err)
		all = append(append(all, raw...), p.eventsOf(id, "")...)
	}
	return all
}

// filesOfTemporal looks for words in all files of Temporal's server.
func (p *product) filesOfTemporal(plain, secret map[string]string) {
	p.t.Helper()
	found := map[string]bool{}
	require.NoError(p.t, filepath.WalkDir(filepath.Join(p.dir, "stack", "temporal"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		for what := range plain {
			found[what] = found[what] || bytes.Contains(data, []byte(plain[what]))
			require.False(p.t, bytes.Contains(data, []byte(secret[what])), "the %s is in %s", what, path)
		}
		return err
	}))
	for what := range plain {
		require.True(p.t, found[what], "the control: the search finds the %s in Temporal's files", what)
	}
}

// showsWithItsCodecServer reads the mission with the temporal command and in the Web
// UI, with the codec server and without.
func (p *product) showsWithItsCodecServer(w map[string]string) {
	t := p.t
	t.Helper()
	b := startBrowser(t, p.Stack.UIURL)
	page := p.page("mission.secret-work")
	b.open(page, "No details available")
	require.Contains(t, b.text(), "Codec Server could not connect")
	require.NotContains(t, b.text(), "launched by")

	codec, err := p.StartCodecServer(t.Context())
	require.NoError(t, err)
	b.open(page, "launched by")
	require.Contains(t, b.text(), w["actor"])

	show := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), devstacktest.TemporalCLI(t), append([]string{
			"workflow", "show", "-w", "phase.secret-work.work", "--output", "json", "--address", p.Stack.TemporalAddress, "--disable-config-file", "--disable-config-env",
		}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.Output()
		require.NoError(t, err)
		return payloadsOf(string(out))
	}
	require.NotContains(t, show(), w["command"])
	require.Contains(t, show("--codec-endpoint", "http://"+p.Stack.CodecAddress), w["command"])
	require.NoError(t, codec.Stop())
}

var payloadPattern = regexp.MustCompile(`"data": "([A-Za-z0-9+/=]*)"`)

// payloadsOf is what the payloads of a history in JSON have, which is in base64 there.
func payloadsOf(text string) string {
	var all strings.Builder
	for _, found := range payloadPattern.FindAllStringSubmatch(text, -1) {
		part, _ := base64.StdEncoding.DecodeString(found[1])
		all.Write(append(part, '\n'))
	}
	return all.String()
}
