package oam_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
)

// verdicts are what the documents of testdata exercise: the levels, rules and
// lines of their findings. Up to deprecated-link-config they are wadm's.
var verdicts = map[string]string{
	"actor.json":                         "warning provider-link 38",
	"actor.yaml":                         "warning provider-link 33",
	"broken-scaler.yaml":                 "error duplicate-component 24; error scaler-properties 19; warning trait-ignored 13",
	"config-without-scaler.yaml":         "warning no-scaler 10",
	"consumes-component.yaml":            "",
	"consumes-no-application.yaml":       "",
	"consumes-no-component.yaml":         "",
	"consumes-not-shared.yaml":           "",
	"consumes-providers.yaml":            "",
	"custom-interface.yaml":              "",
	"custom-trait.yaml":                  "warning no-scaler 8; warning trait-ignored 13",
	"dangling-link.yaml":                 "error link-target 18; warning dangling-link 18",
	"deprecated-link-config.yaml":        "warning deprecated-link-config 22; warning deprecated-link-config 37",
	"duplicate-component.yaml":           "error duplicate-component 16",
	"duplicate-id-capabilities.yaml":     "error duplicate-id 16",
	"duplicate-id-components.yaml":       "error duplicate-id 20",
	"empty-config.yaml":                  "",
	"foreign-id.yaml":                    "",
	"full.yaml":                          "",
	"generation-1.yaml":                  "",
	"generation-2.yaml":                  "",
	"generation-3.yaml":                  "",
	"image-and-application.yaml":         "error image-or-application 10",
	"link-config-names.yaml":             "error duplicate-link-config 27; error duplicate-link-config 33; error duplicate-link-config 62; warning config-conflict 27; warning config-conflict 33",
	"long-file-images.yaml":              "",
	"misnamed-interface.yaml":            "warning unknown-interface 21",
	"misspelt-linkdef-target.yaml":       "error link-target 18; warning trait-ignored 16",
	"neither-image-nor-application.yaml": "error image-or-application 10",
	"nine-thousand.yaml":                 "",
	"not-shared.yaml":                    "",
	"one-region.yaml":                    "",
	"provider-without-scaler.yaml":       "",
	"regions.yaml":                       "",
	"same-interface.yaml":                "error duplicate-link 27",
	"secret.yaml":                        "",
	"several-spreads.yaml":               "",
	"shared-component.yaml":              "",
	"shared-providers.yaml":              "",
	"simple.yaml":                        "",
	"two-interfaces.yaml":                "warning link-overwritten 23",
	"two-targets.yaml":                   "error duplicate-link 42",
	"unknown-package.yaml":               "warning unknown-interface 21",
	"unknown-trait-key.yaml":             `line 14, column 11: spec.components[0].traits[0]: "property" is no key of a trait; the keys are type, properties`,
	"unknown-wasmcloud-package.yaml":     "warning unknown-interface 29",
	"unused-policy.yaml":                 "",
	"wrong-interfaces.yaml":              "warning unknown-interface 23; warning unknown-interface 23",
}

func TestVerdicts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.*")
	require.NoError(t, err)
	require.Len(t, files, len(verdicts))
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, known := verdicts[filepath.Base(file)]
			require.True(t, known)
			require.Equal(t, want, verdict(t, file))
		})
	}
}

func verdict(t *testing.T, file string) string {
	t.Helper()
	src, err := os.ReadFile(file)
	require.NoError(t, err)
	document, err := oam.Parse(src, oam.Detect)
	if err != nil {
		return err.Error()
	}
	var findings []string
	for _, f := range document.Validate() {
		findings = append(findings, strings.Join([]string{string(f.Level), f.Rule, strconv.Itoa(f.Line)}, " "))
	}
	return strings.Join(findings, "; ")
}

// TestBothFormatsSayTheSame reads a document that is there in both.
func TestBothFormatsSayTheSame(t *testing.T) {
	inYAML, err := os.ReadFile("testdata/actor.yaml")
	require.NoError(t, err)
	inJSON, err := os.ReadFile("testdata/actor.json")
	require.NoError(t, err)
	m := parse(t, string(inYAML), oam.YAML).Manifest
	require.Equal(t, m, parse(t, string(inJSON), oam.JSON).Manifest)
	require.Equal(t, oam.TypeComponent, m.Spec.Components[0].Type)
}
