package mission

import (
	"regexp"
	"strings"
)

var (
	dnsLabel  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	labelName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

const (
	nameHint  = "write at most 63 small letters, digits and dashes that start and end with a letter or digit"
	labelHint = "write at most 63 letters, digits, dashes, underscores and dots that start and end with a letter or digit"
)

// maxArgument is the longest single argument or variable Linux hands to a
// program, less the zero at its end.
const maxArgument = 128<<10 - 1

// IsName reports whether name may be the name of a mission or a phase: a DNS label.
func IsName(name string) bool { return dnsLabel.MatchString(name) }

func (r *reader) name(v value) string {
	text, ok := r.text(v)
	if ok && !IsName(text) {
		r.refuse(v, "is not a name", nameHint)
	}
	return text
}

// labels reads Kubernetes labels: an optional DNS prefix and a slash before the
// name, values that may be empty.
func (r *reader) labels(v value) map[string]string {
	entries := r.texts(v)
	labels := make(map[string]string, len(entries))
	for _, e := range entries {
		if !isLabelKey(e.name) {
			r.about(e.at, quote(e.name), "is not a label name", labelHint+"; a DNS name and a slash may stand before it")
		}
		text, ok := r.text(e.value)
		if ok && text != "" && !labelName.MatchString(text) {
			r.refuse(e.value, "is not a label value", labelHint)
		}
		labels[e.name] = text
	}
	return emptyIsNil(labels)
}

func isLabelKey(key string) bool {
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return labelName.MatchString(key)
	}
	return isDNSName(prefix) && labelName.MatchString(name)
}

func isDNSName(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if !dnsLabel.MatchString(label) {
			return false
		}
	}
	return len(name) <= 253
}

// env reads environment variables.
func (r *reader) env(v value) map[string]string {
	entries := r.texts(v)
	env := make(map[string]string, len(entries))
	for _, e := range entries {
		if !envName.MatchString(e.name) {
			r.about(e.at, quote(e.name), "is not a variable name", "write letters, digits and underscores that do not start with a digit")
		}
		text, ok := r.text(e.value)
		if ok {
			r.argument(e.value, e.name+"="+text)
		}
		env[e.name] = text
	}
	return emptyIsNil(env)
}

// argument refuses what the kernel cannot hand to a program.
func (r *reader) argument(v value, text string) {
	if strings.Contains(text, "\x00") {
		r.refuse(v, "contains a zero byte", "remove it")
	}
	if len(text) > maxArgument {
		r.refuse(v, "is longer than 128 KiB", "put it into a file of the workspace")
	}
}

func emptyIsNil(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}
