package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tidewait/internal/mission"
)

// Options configure a [Gateway].
type Options struct {
	Protocols []string // that a workspace's URL may use: https, ssh, http, git, file; nil: https and ssh
	Roots     []string // directories whose repositories a file URL may name
	GitConfig []string // key=value, for fetching from URLs: credentials, proxies, certificates
	Limits    Limits   // on what a phase may bring back; 0: the default
	Logger    *slog.Logger
}

// Gateway keeps the checkouts of missions under one directory. It is safe for
// concurrent use, also by several processes on the same directory.
type Gateway struct {
	root      string
	roots     []string // resolved
	protocols []string
	gitConfig []string
	limits    Limits
	log       *slog.Logger
}

// New returns the gateway of a directory, which it makes when it is not there,
// and removes what a crash left in it.
func New(root string, o Options) (*Gateway, error) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("workspace directory %s: %w", root, err)
	}
	g := &Gateway{root: absolute, protocols: o.Protocols, gitConfig: o.GitConfig, limits: o.Limits.orDefault(), log: o.Logger}
	if g.protocols == nil {
		g.protocols = []string{"https", "ssh"}
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	for _, dir := range o.Roots {
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, fmt.Errorf("workspace root %s: %w", dir, err)
		}
		g.roots = append(g.roots, resolved)
	}
	if err := g.lay(); err != nil {
		return nil, err
	}
	if err := requireGit(); err != nil {
		return nil, err
	}
	if err := g.sweep(); err != nil {
		return nil, err
	}
	return g, nil
}

// lay makes what is always there, also when somebody removed it meanwhile.
func (g *Gateway) lay() error {
	for _, dir := range []string{g.missions(), g.scratches(), g.damaged()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("workspace directory: %w", err)
		}
	}
	return g.writeTrust()
}

// requireGit refuses a git that lacks what this package uses.
func requireGit() error {
	const oldest = 239
	text, err := git{deadline: localDeadline}.output(context.Background(), "version")
	if err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(text, "git version %d.%d", &major, &minor); err != nil || major*100+minor < oldest {
		return fmt.Errorf("%s is too old; install git 2.39 or later", text)
	}
	return nil
}

func (g *Gateway) missions() string  { return filepath.Join(g.root, "missions") }
func (g *Gateway) damaged() string   { return filepath.Join(g.root, "damaged") }
func (g *Gateway) scratches() string { return filepath.Join(g.root, "scratch") }
func (g *Gateway) trust() string     { return filepath.Join(g.root, "gitconfig") }

func (g *Gateway) directory(mission string) string {
	return filepath.Join(g.missions(), mission+".git")
}

// writeTrust makes git read repositories of other owners. It is used for
// fetching only, and only from the roots, which an operator chose.
func (g *Gateway) writeTrust() error {
	return os.WriteFile(g.trust(), []byte("[safe]\n\tdirectory = *\n"), 0o600)
}

// existing is git in a mission's repository, which has to be there.
func (g *Gateway) existing(name string) (git, error) {
	if !mission.IsName(name) {
		return git{}, refuse(Missing, "%q is not a mission's name", name)
	}
	dir := g.directory(name)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return git{}, refuse(Missing, "this gateway has no checkout of mission %s", name)
	} else if err != nil {
		return git{}, fmt.Errorf("checkout of mission %s: %w", name, err)
	}
	return bare(dir), nil
}

// created is git in a mission's repository, made when it is not there.
func (g *Gateway) created(ctx context.Context, name string, s *scratch) (git, error) {
	if !mission.IsName(name) || isDir(g.directory(name)) {
		return g.existing(name)
	}
	made := filepath.Join(s.dir, "new.git")
	if _, err := bare(made).output(ctx, "init", "--quiet", "--bare", "--template="); err != nil {
		return git{}, fmt.Errorf("checkout of mission %s: %w", name, err)
	}
	if err := os.Rename(made, g.directory(name)); err != nil && !isDir(g.directory(name)) {
		return git{}, fmt.Errorf("checkout of mission %s: %w", name, err)
	}
	return g.existing(name)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// scratch is a directory that is removed when its work ends, or by the next
// sweep when its process did not live to do that.
type scratch struct {
	dir  string
	lock *os.File // held as long as the directory is in use
	root *os.Root // everything inside is opened through it
}

func newScratch(parent string) (*scratch, error) {
	dir, err := os.MkdirTemp(parent, "work-")
	if err != nil {
		return nil, fmt.Errorf("scratch directory: %w", err)
	}
	s := &scratch{dir: dir}
	if s.lock, err = lockDir(dir); err == nil {
		s.root, err = os.OpenRoot(dir)
	}
	if err != nil {
		s.remove()
		return nil, fmt.Errorf("scratch directory: %w", err)
	}
	return s, nil
}

func (s *scratch) create(name string) (*os.File, error) {
	return s.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
}

// ref is a ref for this work alone.
func (s *scratch) ref() string { return passingRefs + filepath.Base(s.dir) }

// forget removes the ref, also when the work was cancelled.
func (s *scratch) forget(ctx context.Context, repo git) {
	_, _ = repo.output(context.WithoutCancel(ctx), "update-ref", "-d", s.ref()) // else the next sweep does
}

func (s *scratch) remove() {
	if s.root != nil {
		s.root.Close()
	}
	os.RemoveAll(s.dir)
	if s.lock != nil {
		s.lock.Close()
	}
}

// lockDir takes the lock of a directory; another holder is an error.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// staleLock is the age at which a lock file of git belongs to nobody: git holds
// one for milliseconds.
const staleLock = time.Minute

// sweep removes scratch directories nobody holds and what a killed git left in
// repositories.
func (g *Gateway) sweep() error {
	works, err := filepath.Glob(filepath.Join(g.scratches(), "work-*"))
	if err != nil {
		return err
	}
	for _, dir := range works {
		held, err := lockDir(dir)
		if err != nil {
			continue
		}
		g.log.Info("removing the scratch directory of work that did not end", "dir", dir)
		err = os.RemoveAll(dir)
		held.Close()
		if err != nil {
			return fmt.Errorf("scratch directory: %w", err)
		}
	}
	repos, err := filepath.Glob(filepath.Join(g.missions(), "*.git"))
	if err != nil {
		return err
	}
	for _, dir := range repos {
		if err := g.sweepRepository(dir); err != nil {
			return fmt.Errorf("checkout %s: %w", dir, err)
		}
	}
	return nil
}

func (g *Gateway) sweepRepository(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if filepath.Base(filepath.Dir(path)) == "objects" && entry.Name() != "pack" {
				return fs.SkipDir // loose objects are many and never left half
			}
			return nil
		}
		if !isLeftover(path) {
			return nil
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < staleLock {
			return nil
		}
		g.log.Info("removing what a git that did not end left", "file", path)
		return os.Remove(path)
	})
}

// isLeftover reports whether a file of a repository lives only as long as one
// piece of work.
func isLeftover(path string) bool {
	name := filepath.Base(path)
	return strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".keep") || strings.HasPrefix(name, "tmp_") ||
		strings.HasPrefix(name, "fast_import_crash_") || strings.Contains(path, passingRefs)
}
