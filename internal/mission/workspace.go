package mission

import (
	"path/filepath"
	"strings"
)

// Remote reports whether the gateway fetches the workspace itself, from a URL
// or an ssh address such as git@host:project.git.
func (w Workspace) Remote() bool { return isRemote(w.Git) }

// Resolve returns w with a relative local path made absolute against dir, the
// directory of the mission file. A remote workspace comes back unchanged.
func (w Workspace) Resolve(dir string) Workspace {
	if w.Git != "" && !w.Remote() {
		w.Git = resolved(dir, w.Git)
	}
	if w.Path != "" {
		w.Path = resolved(dir, w.Path)
	}
	return w
}

func resolved(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// isRemote follows git: a scheme makes a URL, and a colon before the first
// slash makes an ssh address.
func isRemote(git string) bool {
	if strings.Contains(git, "://") {
		return true
	}
	host, _, found := strings.Cut(git, ":")
	return found && !strings.Contains(host, "/")
}
