package mission_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/mission"
)

const someDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseImage(t *testing.T) {
	for text, want := range map[string]mission.Image{
		"registry.example.com/team/tool:1.2":               {Registry: "registry.example.com", Repository: "team/tool", Tag: "1.2"},
		"registry.example.com:5000/tool:v1":                {Registry: "registry.example.com:5000", Repository: "tool", Tag: "v1"},
		"localhost/tool:v1":                                {Registry: "localhost", Repository: "tool", Tag: "v1"},
		"[::1]:5000/tool:v1":                               {Registry: "[::1]:5000", Repository: "tool", Tag: "v1"},
		"docker.io/debian:13":                              {Registry: "docker.io", Repository: "library/debian", Tag: "13"},
		"registry.example.com/team/tool@" + someDigest:     {Registry: "registry.example.com", Repository: "team/tool", Digest: someDigest},
		"registry.example.com/team/tool:1.2@" + someDigest: {Registry: "registry.example.com", Repository: "team/tool", Tag: "1.2", Digest: someDigest},
		"oci:/srv/images/tool":                             {Layout: "/srv/images/tool"},
		"oci:/srv/images/tool:1.2":                         {Layout: "/srv/images/tool", Tag: "1.2"},
		"oci:/srv/images/tool@" + someDigest:               {Layout: "/srv/images/tool", Digest: someDigest},
		"oci:/srv/images/tool:1.2@" + someDigest:           {Layout: "/srv/images/tool", Tag: "1.2", Digest: someDigest},
		"oci:/srv/a:b/tool":                                {Layout: "/srv/a:b/tool"},
		"oci:/srv/images/with space":                       {Layout: "/srv/images/with space"},
	} {
		got, problem := mission.ParseImage(text)
		require.Empty(t, problem, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"":                                    "is not an image reference",
		"Debian":                              "is not an image reference",
		"registry.example.com/Team/tool:1":    "is not an image reference",
		"registry.example.com/tool:":          "is not an image reference",
		"https://registry.example.com/tool:1": "is not an image reference",
		"debian":                              "names no registry",
		"debian:13":                           "names no registry",
		"team/tool:1.2":                       "names no registry",
		"registry.example.com/team/tool":      "names no version",
		"registry.example.com/a@sha512:" + strings.Repeat("ab", 64): "has a digest that is not sha256",
		"registry.example.com/a@sha256:12":                          "is not an image reference",
		"oci:srv/images":                                            "names no absolute directory",
		"oci:":                                                      "names no absolute directory",
		"oci:/":                                                     "names no absolute directory",
		"oci:/srv/../etc":                                           "names no absolute directory",
		"oci:/srv/images/":                                          "names no absolute directory",
		"oci:/srv/a\nb":                                             "names no absolute directory",
		"oci:/srv/tool:":                                            "has a tag that is none",
		"oci:/srv/tool:a b":                                         "has a tag that is none",
		"oci:/srv/tool@sha256:12":                                   "has a digest that is not sha256",
		"oci:/" + strings.Repeat("a", 1024):                         "is longer than 1024 bytes",
	} {
		_, problem := mission.ParseImage(text)
		require.Equal(t, want, problem, "%q", text)
	}
}

func TestImageKey(t *testing.T) {
	require.Equal(t, "registry.example.com/tool:1", mission.ImageKey("registry.example.com/tool:1"))
	require.Equal(t, someDigest, mission.ImageKey("registry.example.com/tool:1@"+someDigest))
	require.Equal(t, someDigest, mission.ImageKey("oci:/srv/tool@"+someDigest))
	require.Equal(t, "oci:/srv/tool", mission.ImageKey("oci:/srv/tool"))
}

func withPhases(backend, phases string) []byte {
	return []byte("apiVersion: tidewait/v1\nkind: Mission\nmetadata: {name: m}\nspec:\n  backend: " + backend +
		"\n  workspace: {path: ./files}\n  phases:\n" + phases)
}

func TestImagesOfPhases(t *testing.T) {
	m, err := mission.Parse("m.yaml", withPhases("microvm", `
    - {name: a, run: [x]}
    - {name: b, run: [x], image: "registry.example.com/tool:1"}
    - name: c
      image: registry.example.com/tool:1
      agents:
        - {name: one, run: [x]}
        - {name: two, run: [x], image: default}
        - {name: three, run: [x], image: "oci:/srv/images/other"}
        - {name: four, run: [x]}
`))
	require.NoError(t, err)
	phases := m.Spec.Phases
	require.Equal(t, "default", phases[0].Image)
	require.Empty(t, phases[0].Images())
	require.Equal(t, []string{"registry.example.com/tool:1"}, phases[1].Images())
	require.Equal(t, "default", phases[2].Image, "what it says is in its agents")
	require.Equal(t, []string{"registry.example.com/tool:1", "", "oci:/srv/images/other", "registry.example.com/tool:1"},
		[]string{phases[2].Agents[0].Image, phases[2].Agents[1].Image, phases[2].Agents[2].Image, phases[2].Agents[3].Image})
	require.Equal(t, []string{"registry.example.com/tool:1", "oci:/srv/images/other"}, phases[2].Images())
}

func TestImagesAreNotForProcess(t *testing.T) {
	_, err := mission.Parse("m.yaml", withPhases("process", `    - {name: a, run: [x], image: default}
    - {name: b, run: [x], image: "registry.example.com/tool:1"}
    - {name: c, agents: [{name: one, run: [x], image: "oci:/srv/tool"}]}
`))
	const rest = ` cannot be used with backend process, whose commands are the node's own programs; write backend: microvm, or image: default`
	require.EqualError(t, err, `m.yaml:9:34: spec.phases[1].image: "registry.example.com/tool:1"`+rest+"\n"+
		`m.yaml:10:55: spec.phases[2].agents[0].image: "oci:/srv/tool"`+rest)
}
