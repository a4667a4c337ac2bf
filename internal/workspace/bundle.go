package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tidewait/internal/mission"
)

// Bundle is a git bundle that was written.
type Bundle struct {
	Head   string // the commit it is of
	Ref    string // the ref that named the commit; empty for a directory
	SHA256 string // of the bundle, hex
	Bytes  int64
	Dirty  int // files whose changes are not in it, because they are not committed
}

// BundleRepo writes a bundle of one ref of a local repository, with all of its
// history, to w. Nothing in the repository changes. An empty ref is HEAD.
func BundleRepo(ctx context.Context, dir, ref string, w io.Writer) (Bundle, error) {
	if ref == "" {
		ref = "HEAD"
	}
	if problem := mission.CheckRef(ref); problem != "" {
		return Bundle{}, refuse(BadRef, "%q %s; name a branch, a tag or a full commit id", ref, problem)
	}
	repo, err := openLocal(ctx, dir)
	if err != nil {
		return Bundle{}, err
	}
	head, err := repo.resolve(ctx, ref)
	if err != nil {
		return Bundle{}, err
	}
	temporary, err := os.MkdirTemp("", "tidewait-bundle-")
	if err != nil {
		return Bundle{}, err
	}
	defer os.RemoveAll(temporary)
	borrowing, err := repo.borrow(ctx, temporary, head)
	if err != nil {
		return Bundle{}, err
	}
	bundle, err := writeBundle(ctx, borrowing, head, ref, w, bundleRef)
	if err != nil {
		return Bundle{}, repo.unreadable(err)
	}
	bundle.Dirty, err = repo.dirty(ctx, head)
	return bundle, err
}

// BundleDir writes a bundle of a directory that need not be a repository: one
// commit of all its files, the same for the same content. A .git is left out at
// any depth. A file that cannot be read, or is neither a file nor a link, is an
// error that names it.
func BundleDir(ctx context.Context, dir string, w io.Writer) (Bundle, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Bundle{}, refuse(Unreadable, "cannot read the directory %s: %s", dir, reason(err))
	}
	defer root.Close()
	temporary, err := os.MkdirTemp("", "tidewait-bundle-")
	if err != nil {
		return Bundle{}, err
	}
	defer os.RemoveAll(temporary)
	repo := bare(temporary)
	if _, err := repo.output(ctx, "init", "--quiet", "--bare", "--template="); err != nil {
		return Bundle{}, err
	}
	// A fixed time, so that the same files are the same commit.
	when := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	head, err := repo.importCommit(ctx, passingRefs+"workspace", func(i *importer) error {
		i.commit(passingRefs+"workspace", committer, when, "Workspace\n", "")
		return importDir(ctx, i, dir, root)
	})
	if err != nil {
		return Bundle{}, err
	}
	if err := writeRef(temporary, head); err != nil {
		return Bundle{}, err
	}
	return writeBundle(ctx, repo, head, "", w, bundleRef)
}

func importDir(ctx context.Context, i *importer, dir string, root *os.Root) error {
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return refuse(Unreadable, "cannot read %s: %s", filepath.Join(dir, path), reason(err))
		case path == ".":
			return nil
		case entry.Name() == ".git":
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if problem := pathProblem(path); problem != "" {
			return refuse(Unreadable, "%q in %s %s", path, dir, problem)
		}
		if entry.IsDir() {
			return nil
		}
		if err := importFile(i, root, path, entry.Type()); err != nil {
			return refuse(Unreadable, "cannot read %s: %s", filepath.Join(dir, path), reason(err))
		}
		return i.err
	})
}

func importFile(i *importer, root *os.Root, path string, kind fs.FileMode) error {
	if kind&fs.ModeSymlink != 0 {
		target, err := root.Readlink(path)
		if err == nil {
			i.file(path, modeLink, strings.NewReader(target), int64(len(target)))
		}
		return err
	}
	if !kind.IsRegular() {
		return errors.New("it is neither a file, a directory nor a symbolic link")
	}
	file, err := root.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	mode := modeFile
	if info.Mode()&0o100 != 0 {
		mode = modeExecutable
	}
	i.file(path, mode, file, info.Size())
	if errors.Is(i.err, io.EOF) {
		return errors.New("it became shorter while it was read")
	}
	return nil
}

// reason is the cause of a file error without operation and path.
func reason(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	return err.Error()
}

// writeBundle writes a bundle of revisions and counts and sums it on the way.
func writeBundle(ctx context.Context, repo git, head, ref string, w io.Writer, revisions ...string) (Bundle, error) {
	sum := sha256.New()
	count := &counter{}
	args := append([]string{"bundle", "create", "--quiet", "-"}, revisions...)
	if err := repo.slowly().run(ctx, nil, io.MultiWriter(w, sum, count), args...); err != nil {
		return Bundle{}, err
	}
	return Bundle{Head: head, Ref: ref, SHA256: hex.EncodeToString(sum.Sum(nil)), Bytes: count.bytes}, nil
}

// isBundle reports whether a file starts as a git bundle does. Git would follow
// other files: one that starts with gitdir: leads to any repository.
func isBundle(path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	start := make([]byte, len("# v2 git bundle\n"))
	if _, err := io.ReadFull(file, start); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return string(start) == "# v2 git bundle\n" || string(start) == "# v3 git bundle\n", nil
}

type counter struct{ bytes int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}

// writeRef makes bundleRef of a repository that nobody else uses.
func writeRef(dir, commit string) error {
	return os.WriteFile(filepath.Join(dir, filepath.FromSlash(bundleRef)), []byte(commit+"\n"), 0o600)
}

// local is a repository of the user.
type local struct {
	git
	dir     string
	objects string // absolute
	isBare  bool
}

// openLocal finds the repository at dir itself, not one around it. The user's
// own git configuration applies, because it says which repositories to trust and
// which files to ignore.
func openLocal(ctx context.Context, dir string) (local, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return local{}, err
	}
	if !isDir(absolute) {
		return local{}, refuse(Unreadable, "%s is not a directory", dir)
	}
	repo := local{dir: dir, git: git{
		place:    []string{"-C", absolute},
		env:      []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(absolute)},
		deadline: localDeadline,
	}}
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"} {
		if value, set := os.LookupEnv(name); set {
			repo.env = append(repo.env, name+"="+value)
		}
	}
	out, err := repo.output(ctx, "rev-parse", "--is-bare-repository", "--is-shallow-repository", "--show-object-format", "--git-path", "objects")
	var failure *gitError
	if errors.As(err, &failure) && failure.says("not a git repository") {
		return local{}, refuse(Unreadable, "%s is not a git repository; use path: instead of git: for a plain directory", dir)
	}
	if err != nil {
		return local{}, repo.unreadable(err)
	}
	facts := strings.SplitN(out, "\n", 4)
	switch {
	case len(facts) != 4:
		return local{}, fmt.Errorf("git rev-parse in %s printed %q", dir, out)
	case facts[1] == "true":
		return local{}, refuse(Unreadable, "%s is a shallow clone, which lacks history; run git fetch --unshallow in it, or use path: instead of git:", dir)
	case facts[2] != "sha1":
		return local{}, refuse(Unreadable, "%s stores its objects by %s, which is not supported; use path: instead of git:", dir, facts[2])
	}
	repo.isBare, repo.objects = facts[0] == "true", facts[3]
	if !filepath.IsAbs(repo.objects) {
		repo.objects = filepath.Join(absolute, repo.objects)
	}
	return repo, nil
}

// unreadable turns git's failure into a refusal with git's words.
func (l local) unreadable(err error) error {
	var failure *gitError
	if errors.As(err, &failure) {
		return refuse(Unreadable, "cannot read the repository %s: %s", l.dir, failure.sentence())
	}
	return err
}

// resolve returns the commit a ref names.
func (l local) resolve(ctx context.Context, ref string) (string, error) {
	commit, err := l.output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	var failure *gitError
	if !errors.As(err, &failure) {
		return commit, err
	}
	if first, err := l.output(ctx, "for-each-ref", "--count=1"); err == nil && first == "" {
		return "", refuse(Empty, "%s has no commit yet; commit something first", l.dir)
	}
	return "", refuse(BadRef, "%s has no branch, tag or commit %s", l.dir, ref)
}

// borrow makes a repository with one ref that reads the objects of l, so that l
// needs no ref of ours.
func (l local) borrow(ctx context.Context, dir, head string) (git, error) {
	repo := bare(dir)
	if _, err := repo.output(ctx, "init", "--quiet", "--bare", "--template="); err != nil {
		return git{}, err
	}
	info := filepath.Join(dir, "objects", "info")
	if err := os.MkdirAll(info, 0o700); err != nil {
		return git{}, err
	}
	if err := os.WriteFile(filepath.Join(info, "alternates"), []byte(l.objects+"\n"), 0o600); err != nil {
		return git{}, err
	}
	return repo, writeRef(dir, head)
}

// dirty counts the files with uncommitted changes, untracked ones included, when
// head is what is checked out.
func (l local) dirty(ctx context.Context, head string) (int, error) {
	if current, err := l.resolve(ctx, "HEAD"); l.isBare || err != nil || current != head {
		return 0, nil
	}
	out, err := l.slowly().output(ctx, "status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=all")
	if err != nil {
		return 0, l.unreadable(err)
	}
	return strings.Count(out, "\n") + min(len(out), 1), nil
}

// HasCommit reports whether a local repository has a commit, so that results
// need not repeat the history before it.
func HasCommit(ctx context.Context, dir, commit string) (bool, error) {
	repo, err := openLocal(ctx, dir)
	if err != nil || !isCommit(commit) {
		return false, err
	}
	_, err = repo.output(ctx, "cat-file", "-e", commit+"^{commit}")
	var failure *gitError
	if errors.As(err, &failure) {
		return false, nil
	}
	return err == nil, err
}

// FetchInto adds the commits of a bundle, made by [Gateway.BundleBranch], to a
// local repository as a branch of the same name and returns the branch's commit.
// A branch of that name is moved only forward.
func FetchInto(ctx context.Context, dir, bundle, branch string) (string, error) {
	if problem := mission.CheckRef(branch); problem != "" {
		return "", refuse(BadRef, "%q %s", branch, problem)
	}
	repo, err := openLocal(ctx, dir)
	if err != nil {
		return "", err
	}
	if bundle, err = filepath.Abs(bundle); err != nil {
		return "", err
	}
	if is, err := isBundle(bundle); err != nil || !is {
		return "", refuse(Damaged, "%s is not a git bundle", bundle)
	}
	ref := "refs/heads/" + branch
	_, err = repo.allowing("file").output(ctx, "fetch", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
		"--no-recurse-submodules", "--end-of-options", bundle, ref+":"+ref)
	var failure *gitError
	switch {
	case errors.As(err, &failure) && failure.says("non-fast-forward"):
		return "", refuse(Diverged, "%s has a branch %s with other commits; rename or delete it and fetch again", dir, branch)
	case errors.As(err, &failure) && failure.says("checked out", "refusing to fetch into"):
		return "", refuse(Diverged, "branch %s is checked out in %s; check out another one and fetch again", branch, dir)
	case errors.As(err, &failure) && failure.says("lacks these prerequisite commits"):
		return "", refuse(Damaged, "%s lacks the commit the mission started from; fetch the whole history", dir)
	case errors.As(err, &failure):
		return "", refuse(Unreadable, "cannot fetch the results into %s: %s", dir, failure.sentence())
	case err != nil:
		return "", err
	}
	return repo.resolve(ctx, ref)
}

// remoteProtocols are those that results may be pushed over.
var remoteProtocols = []string{"https", "ssh", "http", "git", "file"}

// Push pushes a branch of a local repository to one of its remotes, with the
// user's own settings and credentials. A branch there moves only forward. No hook
// is run.
func Push(ctx context.Context, dir, remote, branch string) error {
	repo, err := openLocal(ctx, dir)
	if err != nil {
		return err
	}
	out, err := repo.output(ctx, "remote")
	if err != nil {
		return repo.unreadable(err)
	}
	remotes := strings.Fields(out)
	if !slices.Contains(remotes, remote) {
		known := "it has none"
		if len(remotes) > 0 {
			known = "it has " + strings.Join(remotes, ", ")
		}
		return refuse(BadURL, "%s has no remote %q; %s", dir, remote, known)
	}
	for _, name := range []string{"SSH_AUTH_SOCK", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"} {
		if value, set := os.LookupEnv(name); set {
			repo.env = append(repo.env, name+"="+value)
		}
	}
	ref := "refs/heads/" + branch
	_, err = repo.allowing(remoteProtocols...).output(ctx, "push", "--no-follow-tags", "--recurse-submodules=no", "--end-of-options", remote, ref+":"+ref)
	var failure *gitError
	switch {
	case errors.As(err, &failure) && failure.says("non-fast-forward", "fetch first"):
		return refuse(Diverged, "%s has a branch %s with other commits, and nothing there is overwritten", remote, branch)
	case errors.As(err, &failure):
		return refuse(Unreadable, "%s: %s", remote, failure.sentence())
	}
	return err
}
