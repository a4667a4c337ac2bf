package oam_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{"mymanifest", "my-manifest", "my_manifest", "mymanifest-v2-v3-final", "-", "_", "A9", "latest", strings.Repeat("n", 253)} {
		require.NoError(t, oam.CheckName(name), name)
	}
	for name, want := range map[string]string{
		"my.manifest":            `the name "my.manifest" is not allowed; write letters from A to Z, digits, dashes and underscores only`,
		"my manifest":            `the name "my manifest" is not allowed; write letters from A to Z, digits, dashes and underscores only`,
		" app":                   `the name " app" is not allowed; write letters from A to Z, digits, dashes and underscores only`,
		"app\n":                  `the name "app\n" is not allowed; write letters from A to Z, digits, dashes and underscores only`,
		"größe":                  `the name "größe" is not allowed; write letters from A to Z, digits, dashes and underscores only`,
		"\xff":                   `the name "\xff" is not allowed; write letters from A to Z, digits, dashes and underscores only`,
		"":                       `the name is empty; write letters, digits, dashes and underscores`,
		strings.Repeat("n", 254): `the name has 254 bytes; at most 253 are allowed`,
	} {
		require.EqualError(t, oam.CheckName(name), want)
	}
}

func TestCheckVersion(t *testing.T) {
	for _, version := range []string{"", "v1", " v 1.0/é ", "Latest", "01M8P84H1YDEYEH917WRMSPKCN", strings.Repeat("v", 253)} {
		require.NoError(t, oam.CheckVersion(version), version)
	}
	for version, want := range map[string]string{
		"latest":                 "the version latest is not allowed; it stands for the newest one",
		"v\x00":                  `the version "v\x00" has a control character`,
		"v\u0085":                `the version "v\u0085" has a control character`,
		"\xff":                   "the version is not UTF-8",
		strings.Repeat("v", 254): "the version has 254 bytes; at most 253 are allowed",
	} {
		require.EqualError(t, oam.CheckVersion(version), want)
	}
}

func TestKeys(t *testing.T) {
	broken := func(key string) bool {
		document := oam.Document{Manifest: oam.Manifest{
			APIVersion: "core.oam.dev/v1beta1", Kind: "Application", Metadata: oam.Metadata{Name: "app", Labels: map[string]string{key: "any value"}},
		}}
		first, bad := oam.FirstError(document.Validate())
		return bad && first.Rule == oam.RuleLabelKey
	}
	for _, key := range []string{
		"foo", "app.oam.io/name", "dash-period.numb3r/any_v4lue", "0", "A-_.z", strings.Repeat("a", 63), "x/" + strings.Repeat("a", 63),
		strings.Repeat(strings.Repeat("a", 62)+".", 4) + "a/x",
	} {
		require.False(t, broken(key), key)
	}
	for _, key := range []string{
		"my_prefix/app-name", "1my_prefix/app-name", "my_prefix---/app-name", "my_prefix/app-name...", strings.Repeat("a", 255), strings.Repeat("a", 64),
		"", "/", "a/", "/a", "a/b/c", "-a", "a-", "_a", "a b", "ä", "1a/x", "a-/x", "a..b/x", ".a/x", strings.Repeat("a", 64) + "/x",
		strings.Repeat(strings.Repeat("a", 62)+".", 4) + "aa/x",
	} {
		require.True(t, broken(key), key)
	}
}
