package guest

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxName bounds a path in a tar stream, in bytes, as Linux does.
const maxName = 4096

// CheckName says what is wrong with the name of a file in a tar stream or of a
// deleted one: it must be a clean relative path inside the workspace, valid
// UTF-8, and not in a .git directory, which never leaves or enters a machine.
func CheckName(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("the name %.60q... is longer than %d bytes", name, maxName)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return fmt.Errorf("the name %q is not valid UTF-8", name)
	case name == "." || !filepath.IsLocal(name) || path.Clean(name) != name:
		return fmt.Errorf("the name %q is not a clean path inside the workspace", name)
	case InGit(name):
		return fmt.Errorf("the name %q lies in a .git directory", name)
	}
	return nil
}

// InGit reports whether a segment of name is .git in any case.
func InGit(name string) bool {
	for s := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(s, ".git") {
			return true
		}
	}
	return false
}
