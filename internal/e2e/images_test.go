package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/vm/rootfs/imagetest"
)

// TestImages runs phases in images of a layout on the node: with a shell, and
// without one, alone and together.
func TestImages(t *testing.T) {
	long(t, 40*time.Second)
	layouts := t.TempDir()
	require.NoError(t, os.Chmod(layouts, 0o755))
	shell := imagetest.Image(t, []string{"MODE=of the image", "KEPT=yes"}, imagetest.Busybox(t, "first"))
	tool := imagetest.Image(t, []string{"MODE=of the tool", "HOME=/home/of-the-image"},
		imagetest.Tar(t, imagetest.File{Name: "tool", Content: imagetest.Tool(t)}, imagetest.File{Name: "marker", Content: "of the tool"}))
	imagetest.Layout(t, filepath.Join(layouts, "shell"), map[string]v1.Image{"1": shell})
	imagetest.Layout(t, filepath.Join(layouts, "tool"), map[string]v1.Image{"": tool})
	shellName, toolName := "oci:"+filepath.Join(layouts, "shell")+":1", "oci:"+filepath.Join(layouts, "tool")
	p := start(t)
	p.node("TIDEWAIT_NODE_BACKENDS=microvm", "TIDEWAIT_NODE_MEMORY=1500Mi", "TIDEWAIT_NODE_IMAGE_LAYOUTS="+layouts)

	p.launch(missionDoc{name: "m", backend: "microvm", phases: []phaseDoc{
		{name: "one", memory: "192Mi", script: `busybox cat /marker > one.txt; echo "$MODE, $KEPT" >> one.txt; test -e /init || echo "nothing of the agent" >> one.txt`, extra: "image: " + shellName + "\nenv: {MODE: of the document}"},
		// The tag is moved while it is held.
		{name: "two", memory: "192Mi", script: "busybox cat /marker > two.txt", extra: "image: " + shellName + "\nhold: true"},
		{name: "both", extra: "agents:\n" +
			"  - {name: tool, image: '" + toolName + "', run: [/tool, tool.txt], resources: {cpus: 0.5, memory: 160Mi, disk: 64Mi}}\n" +
			"  - {name: shell, image: '" + shellName + "', run: [sh, -c, 'busybox cat /marker /etc/hosts > shell.txt'], resources: {cpus: 0.5, memory: 160Mi, disk: 64Mi}}\n" +
			"  - {name: guest, run: [sh, -c, 'test -e /marker || echo the default > guest.txt'], resources: {cpus: 0.5, memory: 160Mi, disk: 64Mi}}\n"},
	}})
	p.until("m", "the second phase is held", func(m api.MissionDetail) bool { return m.PhaseList[1].Wait != nil })
	require.NoError(t, os.RemoveAll(filepath.Join(layouts, "shell")))
	imagetest.Layout(t, filepath.Join(layouts, "shell"), map[string]v1.Image{"1": imagetest.Image(t, nil, imagetest.Busybox(t, "moved"))})
	p.must("phase", "release", "m", "two")
	m := p.ended("m")
	require.Equal(t, "succeeded", m.Status, m.Failure)

	git := p.committed("m")
	require.Equal(t, "firstof the document, yes\nnothing of the agent\n", git("show", "tidewait/m/1:one.txt"))
	require.Equal(t, "first", git("show", "tidewait/m/1:two.txt"), "a tag is looked up once in a launch")
	require.Equal(t, "marker of the tool\nworkspace a small workspace\nmode of the tool\nhome /home/of-the-image\nshell false\n", git("show", "tidewait/m/1:tool.txt"))
	hosts := git("show", "tidewait/m/1:shell.txt")
	require.True(t, strings.HasPrefix(hosts, "first127.0.0.1 localhost\n"), hosts)
	require.Contains(t, hosts, " tool\n", "the others are known by name")
	require.Equal(t, "the default\n", git("show", "tidewait/m/1:guest.txt"))

	shellPinned, toolPinned := shellName+"@"+imagetest.Digest(t, shell), toolName+"@"+imagetest.Digest(t, tool)
	require.Equal(t, shellPinned, m.PhaseList[0].Runs[0].Image)
	require.Equal(t, shellPinned, m.PhaseList[1].Runs[0].Image)
	agents := m.PhaseList[2].Runs[0].Agents
	require.Equal(t, []string{toolPinned, shellPinned, ""}, []string{agents[0].Image, agents[1].Image, agents[2].Image})
	require.Contains(t, p.must("mission", "show", "m"), "image "+toolPinned)
	require.Contains(t, p.must("node", "show", "n1"), "image   "+shellName)

	p.launch(missionDoc{name: "moved", backend: "microvm", phases: []phaseDoc{{name: "one", memory: "192Mi", script: "busybox cat /marker > one.txt", extra: "image: " + shellName}}})
	require.Equal(t, "succeeded", p.ended("moved").Status)
	require.Equal(t, "moved", p.committed("moved")("show", "tidewait/moved/1:one.txt"), "another launch looks it up again")
	p.nothingLeft()
}

// TestImagesThatCannotBeHad asks a registry that stops answering, and one that has
// the image only at the second attempt.
func TestImagesThatCannotBeHad(t *testing.T) {
	long(t, 30*time.Second)
	r := imagetest.NewRegistry(t)
	r.Push("tool:1", imagetest.Image(t, nil, imagetest.Busybox(t, "of the registry")))
	asked, done := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(done) })
	r.Behave(func(_ http.ResponseWriter, req *http.Request, _ http.Handler) {
		asked <- struct{}{}
		select {
		case <-done:
		case <-req.Context().Done():
		}
	})
	p := start(t)
	p.node("TIDEWAIT_NODE_BACKENDS=microvm", "TIDEWAIT_NODE_MEMORY=1Gi", "TIDEWAIT_NODE_IMAGE_INSECURE="+r.Host, "TIDEWAIT_NODE_IMAGE_REGISTRIES="+r.Host)
	doc := func(name, extra string) missionDoc {
		return missionDoc{name: name, backend: "microvm", phases: []phaseDoc{{name: "work", memory: "192Mi", script: "busybox cat /marker > out.txt", extra: extra}}}
	}

	p.launch(doc("hangs", "image: "+r.Host+"/tool:1"))
	<-asked
	p.until("hangs", "the pull is seen", func(m api.MissionDetail) bool { return m.PhaseList[0].Step == "pull" })
	p.must("mission", "cancel", "hangs", "--reason", "too slow")
	require.Equal(t, "cancelled", p.ended("hangs").Status)

	r.Behave(func(w http.ResponseWriter, req *http.Request, own http.Handler) {
		if strings.Contains(req.URL.Path, "/manifests/") {
			r.Behave(nil)
			http.Error(w, "{}", http.StatusNotFound)
			return
		}
		own.ServeHTTP(w, req)
	})
	p.launch(doc("again", "image: "+r.Host+"/tool:1\nattempts: 2"))
	m := p.ended("again")
	require.Equal(t, "succeeded", m.Status, m.Failure)
	require.Equal(t, []string{"image_unavailable", ""}, []string{m.PhaseList[0].Runs[0].FailureCode, m.PhaseList[0].Runs[1].FailureCode})
	require.Equal(t, "the image "+r.Host+"/tool:1 cannot be used: its registry does not have it (404, Not Found)", m.PhaseList[0].Runs[0].Failure)
	require.Equal(t, "of the registry", p.committed("again")("show", "tidewait/again/1:out.txt"))

	p.launch(doc("elsewhere", "image: registry.example.com/tool:1"))
	m = p.ended("elsewhere")
	require.Equal(t, "image_unavailable", m.FailureCode)
	require.Contains(t, m.Failure, "this node may not ask the registry registry.example.com; node.image_registries has "+r.Host)
	p.nothingLeft()
}
