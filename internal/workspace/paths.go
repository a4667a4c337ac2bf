package workspace

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of one path in results.
const (
	maxPathBytes = 4096
	maxPathDepth = 64
	maxNameBytes = 255
)

// pathProblem returns why a path cannot be taken from a guest, or "".
func pathProblem(name string) string {
	switch {
	case name == "":
		return "has no name"
	case len(name) > maxPathBytes:
		return "has a name of more than 4096 bytes"
	case !utf8.ValidString(name):
		return "has a name that is not UTF-8"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has a control character in its name"
	case strings.Count(name, "/") >= maxPathDepth:
		return "lies more than 64 directories deep"
	}
	return placeProblem(name)
}

// placeProblem returns why unpacking a path could write outside of a directory
// or into a repository's own files, or "".
func placeProblem(name string) string {
	if strings.HasPrefix(name, "/") {
		return "has an absolute name"
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			return "has an empty part in its name"
		case part == "..":
			return "has .. in its name"
		case len(part) > maxNameBytes:
			return "has a part of more than 255 bytes in its name"
		case isDotGit(part):
			return "has .git in its name"
		}
	}
	return ""
}

// isDotGit reports whether some file system takes one part of a path for .git:
// letter case, trailing dots and spaces, the short name and streams of Windows,
// and the characters macOS ignores.
func isDotGit(part string) bool {
	for piece := range strings.SplitSeq(part, `\`) {
		piece = strings.Map(withoutIgnored, piece)
		piece, _, _ = strings.Cut(piece, ":")
		piece = strings.TrimRight(piece, ". ")
		if strings.EqualFold(piece, ".git") {
			return true
		}
		if number, ok := strings.CutPrefix(strings.ToLower(piece), "git~"); ok && number != "" && strings.Trim(number, "0123456789") == "" {
			return true
		}
	}
	return false
}

func withoutIgnored(r rune) rune {
	switch {
	case 0x200c <= r && r <= 0x200f, 0x202a <= r && r <= 0x202e, 0x206a <= r && r <= 0x206f, r == 0xfeff:
		return -1
	}
	return r
}

// gitSettings are the files git reads wherever they lie.
var gitSettings = []string{".gitattributes", ".gitignore", ".gitmodules", ".mailmap"}

// linkProblem returns why a symbolic link cannot be taken from a guest, or "".
// Steps up are allowed at the start of the target only: after a name, which may
// be a link itself, they could lead anywhere.
func linkProblem(name, target string) string {
	switch {
	case target == "":
		return "is a link to nothing"
	case len(target) > maxPathBytes:
		return "is a link to a name of more than 4096 bytes"
	case !utf8.ValidString(target) || strings.ContainsFunc(target, unicode.IsControl):
		return "is a link to a name that is not plain text"
	case strings.HasPrefix(target, "/"):
		return "is a link to the absolute name " + target
	case slices.Contains(gitSettings, strings.ToLower(path.Base(name))):
		return "is a link where git reads its settings"
	}
	up, named := 0, false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part == ".." && named:
			return "is a link with .. after a name: " + target
		case part == "..":
			up++
		case isDotGit(part):
			return "is a link into .git"
		default:
			named = true
		}
	}
	if up > strings.Count(name, "/") {
		return "is a link out of the workspace: " + target
	}
	return ""
}
