package oam

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNameBytes bounds names and versions.
const maxNameBytes = 253

// CheckName returns why name cannot be an application's. wadm allows letters of
// every script as well, but cannot store what has them.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty; write letters, digits, dashes and underscores")
	case len(name) > maxNameBytes:
		return fmt.Errorf("the name has %d bytes; at most %d are allowed", len(name), maxNameBytes)
	case !all(name, isNameChar):
		return fmt.Errorf("the name %s is not allowed; write letters from A to Z, digits, dashes and underscores only", quote(name))
	default:
		return nil
	}
}

// CheckVersion returns why version cannot be one. The empty version can.
func CheckVersion(version string) error {
	switch {
	case version == LatestVersion:
		return errors.New("the version latest is not allowed; it stands for the newest one")
	case len(version) > maxNameBytes:
		return fmt.Errorf("the version has %d bytes; at most %d are allowed", len(version), maxNameBytes)
	case !utf8.ValidString(version):
		return errors.New("the version is not UTF-8")
	case strings.ContainsFunc(version, unicode.IsControl):
		return fmt.Errorf("the version %s has a control character", quote(version))
	default:
		return nil
	}
}

func (c *checker) name() {
	if err := CheckName(c.Manifest.Metadata.Name); err != nil {
		c.error(RuleName, "metadata.name", "%v", err)
	}
}

func versionPath() string { return entryPath("metadata.annotations", AnnotationVersion) }

func (c *checker) versionLatest() {
	if v := c.Manifest.Version(); v == LatestVersion {
		c.error(RuleVersionLatest, versionPath(), "%v", CheckVersion(v))
	}
}

func (c *checker) version() {
	v := c.Manifest.Version()
	if err := CheckVersion(v); err != nil && v != LatestVersion {
		c.error(RuleVersion, versionPath(), "%v", err)
	}
}

func (c *checker) labelKeys() {
	c.keys(RuleLabelKey, "metadata.labels", c.Manifest.Metadata.Labels)
}

func (c *checker) annotationKeys() {
	c.keys(RuleAnnotationKey, "metadata.annotations", c.Manifest.Metadata.Annotations)
}

func (c *checker) keys(rule, path string, entries map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if !isKey(key) {
			c.error(rule, entryPath(path, key), "the key %s is not allowed; write at most 63 letters, digits, dashes, underscores and dots "+
				"that begin and end with a letter or digit, after a DNS name and a slash if you like", quote(key))
		}
	}
}

// isKey reports whether key is a name, or a prefix, a slash and a name.
func isKey(key string) bool {
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return isKeyName(key)
	}
	return isKeyPrefix(prefix) && isKeyName(name)
}

func isKeyName(name string) bool {
	return 1 <= len(name) && len(name) <= 63 && isLetterOrDigit(name[0]) && isLetterOrDigit(name[len(name)-1]) &&
		all(name, func(b byte) bool { return isNameChar(b) || b == '.' })
}

func isKeyPrefix(prefix string) bool {
	if len(prefix) > 253 {
		return false
	}
	for part := range strings.SplitSeq(prefix, ".") {
		if len(part) < 1 || len(part) > 63 || !isLetter(part[0]) || !isLetterOrDigit(part[len(part)-1]) ||
			!all(part, func(b byte) bool { return isLetterOrDigit(b) || b == '-' }) {
			return false
		}
	}
	return true
}

func all(text string, allowed func(byte) bool) bool {
	for i := range len(text) {
		if !allowed(text[i]) {
			return false
		}
	}
	return true
}

func isNameChar(b byte) bool      { return isLetterOrDigit(b) || b == '-' || b == '_' }
func isLetterOrDigit(b byte) bool { return isLetter(b) || '0' <= b && b <= '9' }
func isLetter(b byte) bool        { return 'a' <= b|0x20 && b|0x20 <= 'z' }

// Values of a manifest's header that are known. The kind is Manifest in what the
// Go client writes.
const (
	knownAPIVersion = "core.oam.dev/v1beta1"
	knownKind       = "Application"
	goClientKind    = "Manifest"
)

func (c *checker) header() {
	m := c.Manifest
	if m.APIVersion != knownAPIVersion {
		c.warn(RuleAPIVersion, "apiVersion", "the apiVersion %s is not known and read as %s", quote(m.APIVersion), knownAPIVersion)
	}
	if m.Kind != knownKind && m.Kind != goClientKind {
		c.warn(RuleKind, "kind", "the kind %s is not known and read as %s", quote(m.Kind), knownKind)
	}
	if shared, ok := m.Metadata.Annotations[AnnotationShared]; ok && shared != "true" && shared != "false" {
		c.warn(RuleShared, entryPath("metadata.annotations", AnnotationShared), "%s does not share the application; only \"true\" does", quote(shared))
	}
}
