package negctl

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// edit replaces a piece of one source file, which is in it exactly once.
type edit struct {
	file     string // from the root of the source tree
	old, now string
}

// variantMark is the file in a data directory that lets variants work on it. Only
// the disposable stack of a run has it.
const variantMark = "sabotaged-stack"

// guard is compiled into every variant: it ends before it does anything where it
// is started by something else than a run of negative controls.
const guard = `package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func init() {
	if _, err := os.Stat(filepath.Join(os.Getenv("TIDEWAIT_DATA_DIR"), "` + variantMark + `")); err != nil {
		fmt.Fprintln(os.Stderr, "tidewait-worker: this is a variant without one of its safeties; it works on the stack of ` + "`tidewait negctl --sabotage`" + ` only")
		os.Exit(2)
	}
}
`

// BuildVariant builds tidewait and tidewait-worker with the sabotage in dir, from
// the source tree at source, which is not changed. guest is the guest agent, which
// is the same in all variants.
func (s Sabotage) BuildVariant(ctx context.Context, source, dir, guest string) error {
	source, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	if err := s.edit.check(source); err != nil {
		return err
	}
	overlay, err := s.edit.overlay(source, dir)
	if err != nil {
		return err
	}
	for name, pkg := range map[string]string{"tidewait": "./starter", "tidewait-worker": "./worker"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-overlay", overlay, "-ldflags", "-X tidewait/internal/release.version=0.0.0-sabotaged."+s.Name,
			"-o", filepath.Join(dir, name), pkg)
		cmd.Dir = source
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s without its safety: %w\n%s", name, err, out)
		}
	}
	return os.Symlink(guest, filepath.Join(dir, "tidewait-guest"))
}

func (e edit) check(source string) error {
	module, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil || !strings.HasPrefix(string(module), "module tidewait\n") {
		return fmt.Errorf("%s is not Tidewait's source tree, from which a variant is built: run it there, or name it with --source", source)
	}
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("a variant is built with Go, which is not here: %w", err)
	}
	return nil
}

// overlay writes what the build takes instead of the source tree's own files, and
// returns the path of the list of them.
func (e edit) overlay(source, dir string) (string, error) {
	original := filepath.Join(source, filepath.FromSlash(e.file))
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), e.old); n != 1 {
		return "", fmt.Errorf("%s has the piece that is to be taken out %d times, not once", e.file, n)
	}
	edited, guarded := filepath.Join(dir, "edited.go"), filepath.Join(dir, "guard.go")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {
		original: edited, filepath.Join(source, "worker", "variant.go"): guarded,
	}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	for file, content := range map[string]string{edited: strings.Replace(string(text), e.old, e.now, 1), guarded: guard, path: string(list)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	return path, nil
}
