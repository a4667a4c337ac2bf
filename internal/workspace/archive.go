package workspace

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Manifest is what a tar stream of a commit holds.
type Manifest struct {
	Files  int    // regular files and symbolic links
	Bytes  int64  // content of the regular files
	SHA256 string // of the whole stream, hex
	Tree   string // the commit's tree
}

// Archive writes the files of a commit to w as a tar stream: files, executable
// or not, directories and symbolic links, all of the commit's time and of user
// 0. The same commit gives the same bytes. Attributes of the repository, such as
// export-ignore, change nothing; a submodule is an empty directory.
func (g *Gateway) Archive(ctx context.Context, name, commit string, w io.Writer) (Manifest, error) {
	repo, err := g.existing(name)
	if err != nil {
		return Manifest{}, err
	}
	if !isCommit(commit) {
		return Manifest{}, refuse(BadRef, "%q is not a full commit id", commit)
	}
	entries, err := listTree(ctx, repo, commit)
	var failure *gitError
	if errors.As(err, &failure) && failure.says("Not a valid object name", "not a tree object") {
		return Manifest{}, refuse(Missing, "this gateway's checkout of mission %s has no commit %s", name, commit)
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("archive of commit %.12s: %w", commit, err)
	}
	manifest, err := writeTree(ctx, repo.slowly(), commit, entries, w)
	var refused *Refused
	if err != nil && !errors.As(err, &refused) {
		err = fmt.Errorf("archive of commit %.12s: %w", commit, err)
	}
	return manifest, err
}

// Tree returns the tree of a commit.
func (g *Gateway) Tree(ctx context.Context, name, commit string) (string, error) {
	repo, err := g.existing(name)
	if err != nil {
		return "", err
	}
	if !isCommit(commit) {
		return "", refuse(BadRef, "%q is not a full commit id", commit)
	}
	tree, err := repo.output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{tree}")
	if err != nil {
		return "", fmt.Errorf("tree of commit %.12s: %w", commit, err)
	}
	return tree, nil
}

// treeEntry is one path of a commit.
type treeEntry struct {
	mode string
	id   string
	path string
}

func (e treeEntry) isDir() bool { return e.mode == "040000" || e.mode == "160000" }

func listTree(ctx context.Context, repo git, commit string) ([]treeEntry, error) {
	out, err := repo.output(ctx, "ls-tree", "-r", "-t", "-z", "--full-tree", "--end-of-options", commit)
	if err != nil {
		return nil, err
	}
	var entries []treeEntry
	for record := range strings.SplitSeq(out, "\x00") {
		attributes, path, ok := strings.Cut(record, "\t")
		fields := strings.Fields(attributes)
		if !ok || len(fields) != 3 {
			continue
		}
		if problem := placeProblem(path); problem != "" {
			return nil, refuse(Unreadable, "commit %.12s cannot be unpacked safely: %q %s", commit, path, problem)
		}
		entries = append(entries, treeEntry{mode: fields[0], id: fields[2], path: path})
	}
	return entries, nil
}

// writeTree asks one git process for the commit and every blob in turn.
func writeTree(ctx context.Context, repo git, commit string, entries []treeEntry, w io.Writer) (Manifest, error) {
	out, in := io.Pipe()
	failed := make(chan error, 1)
	var requests strings.Builder
	requests.WriteString(commit + "\n")
	for _, e := range entries {
		if !e.isDir() {
			requests.WriteString(e.id + "\n")
		}
	}
	go func() {
		err := repo.run(ctx, strings.NewReader(requests.String()), in, "cat-file", "--batch", "--buffer")
		in.CloseWithError(err)
		failed <- err
	}()
	manifest, err := writeTar(&objects{bufio.NewReaderSize(out, 256<<10)}, commit, entries, w)
	out.CloseWithError(errNoReader)
	if gitErr := <-failed; err == nil && gitErr != nil && !errors.Is(gitErr, errNoReader) {
		err = gitErr
	}
	return manifest, err
}

func writeTar(source *objects, commit string, entries []treeEntry, w io.Writer) (Manifest, error) {
	var manifest Manifest
	tree, when, err := source.commit(commit)
	if err != nil {
		return manifest, err
	}
	sum := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(w, sum), 256<<10)
	archive := tar.NewWriter(buffered)
	for _, e := range entries {
		if err := writeEntry(archive, source, e, when, &manifest); err != nil {
			return manifest, fmt.Errorf("%s: %w", e.path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return manifest, err
	}
	if err := buffered.Flush(); err != nil {
		return manifest, err
	}
	manifest.Tree, manifest.SHA256 = tree, hex.EncodeToString(sum.Sum(nil))
	return manifest, nil
}

func writeEntry(archive *tar.Writer, source *objects, e treeEntry, when time.Time, manifest *Manifest) error {
	header := &tar.Header{Name: e.path, ModTime: when}
	if e.isDir() {
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, e.path+"/", 0o755
		return archive.WriteHeader(header)
	}
	size, err := source.next()
	if err != nil {
		return err
	}
	manifest.Files++
	if e.mode == modeLink {
		target, err := source.bytes(size)
		if err != nil {
			return err
		}
		header.Typeflag, header.Mode, header.Linkname = tar.TypeSymlink, 0o777, string(target)
		return archive.WriteHeader(header)
	}
	manifest.Bytes += size
	header.Typeflag, header.Mode, header.Size = tar.TypeReg, 0o644, size
	if e.mode == modeExecutable {
		header.Mode = 0o755
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	return source.copy(archive, size)
}

// objects reads the answers of git cat-file --batch.
type objects struct{ in *bufio.Reader }

// unread is git's answer instead of an object.
type unread struct{ answer string }

func (u *unread) Error() string { return u.answer }

// next reads the head of an answer and returns the size of what follows.
func (o *objects) next() (int64, error) {
	line, err := o.in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return 0, fmt.Errorf("git cannot read an object: %w", &unread{strings.TrimSpace(line)})
	}
	return strconv.ParseInt(fields[2], 10, 64)
}

// copy copies the content of an object and skips the newline behind it.
func (o *objects) copy(w io.Writer, size int64) error {
	if _, err := io.CopyN(w, o.in, size); err != nil {
		return err
	}
	_, err := o.in.Discard(1)
	return err
}

func (o *objects) bytes(size int64) ([]byte, error) {
	if size > maxPathBytes {
		return nil, errors.New("is a link to a name of more than 4096 bytes")
	}
	var b bytes.Buffer
	err := o.copy(&b, size)
	return b.Bytes(), err
}

// commit reads a commit and returns its tree and time.
func (o *objects) commit(id string) (tree string, when time.Time, err error) {
	size, err := o.next()
	if err != nil {
		return "", when, err
	}
	var text strings.Builder
	if err := o.copy(&text, size); err != nil {
		return "", when, err
	}
	for line := range strings.Lines(text.String()) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "tree":
			tree = value
		case "committer":
			fields := strings.Fields(value[strings.LastIndexByte(value, '>')+1:])
			if len(fields) == 0 {
				return "", when, fmt.Errorf("commit %s has no time", id)
			}
			seconds, err := strconv.ParseInt(fields[0], 10, 64)
			return tree, time.Unix(seconds, 0).UTC(), err
		}
	}
	return "", when, fmt.Errorf("%s is not a commit", id)
}
