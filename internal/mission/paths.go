package mission

import (
	"path"
	"regexp"
	"strings"
	"unicode"
)

// CheckGlob returns what is wrong with a glob of collected files, or "". A glob
// is relative and slash-separated; each part is a pattern as in [path.Match]
// without backslashes, or ** for any number of directories.
func CheckGlob(glob string) string {
	switch {
	case glob == "":
		return "is empty"
	case len(glob) > 4096:
		return "is longer than 4096 bytes"
	case strings.HasPrefix(glob, "/"):
		return "is not relative to the workspace"
	case strings.Contains(glob, `\`):
		return "contains a backslash"
	case strings.ContainsFunc(glob, unicode.IsControl):
		return "contains a control character"
	}
	for part := range strings.SplitSeq(glob, "/") {
		switch {
		case part == "":
			return "has an empty part between slashes"
		case part == "." || part == "..":
			return "contains " + part
		case part != "**" && strings.Contains(part, "**"):
			return "joins ** with other characters"
		}
		if _, err := path.Match(part, ""); err != nil {
			return "has a bracket that is not closed or is empty"
		}
	}
	return ""
}

// CheckRef returns what is wrong with the name of a branch, a tag or a commit,
// or "". The rules are those of git-check-ref-format, and no revision
// expression such as main~1 is a name.
func CheckRef(ref string) string {
	switch {
	case ref == "":
		return "is empty"
	case len(ref) > 255:
		return "is longer than 255 bytes"
	case strings.HasPrefix(ref, "-"):
		return "starts with a dash"
	case ref == "@" || strings.Contains(ref, "@{"):
		return "is a revision expression"
	case strings.ContainsAny(ref, " ~^:?*[\\") || strings.ContainsFunc(ref, unicode.IsControl):
		return "contains a character that no ref may have"
	case strings.Contains(ref, "..") || strings.HasSuffix(ref, "."):
		return "has dots where no ref may have them"
	}
	for part := range strings.SplitSeq(ref, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return "has a part that is empty, starts with a dot or ends in .lock"
		}
	}
	return ""
}

// helperAddress is git's way to name a program that does the transport.
var helperAddress = regexp.MustCompile(`^[A-Za-z0-9+.-]*::`)

// password is what stands between the user's name and the host of a URL.
var password = regexp.MustCompile(`^([a-z][a-z0-9+.-]*://[^/@:]*):[^/]*@`)

// CheckGit returns what is wrong with the address of a repository, or "".
func CheckGit(git string) string {
	switch {
	case git == "":
		return "is empty"
	case len(git) > 2048:
		return "is longer than 2048 bytes"
	case strings.HasPrefix(git, "-"):
		return "starts with a dash"
	case strings.ContainsFunc(git, unicode.IsControl):
		return "contains a control character"
	case helperAddress.MatchString(git):
		return "names a transport helper, which is never run"
	case password.MatchString(git):
		return "contains a password"
	}
	return ""
}

// RedactGit returns the address of a repository with its password, if it has
// one, replaced by three dots.
func RedactGit(git string) string { return password.ReplaceAllString(git, "${1}:...@") }
