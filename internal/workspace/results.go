package workspace

import (
	"archive/tar"
	"bufio"
	"crypto/sha1" //nolint:gosec // git's object names
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
)

// result is one file or link of a phase's results.
type result struct {
	path   string
	mode   string // as git writes it
	offset int64  // of its content in the spool
	size   int64
	id     string // of git's object with the content; empty: nobody compares it
}

const (
	modeFile       = "100644"
	modeExecutable = "100755"
	modeLink       = "120000"
)

// intake takes the results of a run, part by part, into one spool. The limits
// are on all of them together.
type intake struct {
	limits   Limits
	spool    *os.File
	identify bool  // find the ids of contents
	entries  int   // files, directories and links so far
	bytes    int64 // of content so far; where the next one goes
}

// reception reads a tar stream that a guest made. Only the spool is written.
type reception struct {
	*intake
	spool io.Writer
	kinds map[string]byte // of every path seen, as tar.TypeReg, tar.TypeSymlink or tar.TypeDir
	files []result
}

// receive reads results from a guest into the spool and checks every rule. The
// digest, unless empty, is the SHA-256 of the whole stream in hexadecimal.
func (in *intake) receive(stream io.Reader, digest string) ([]result, error) {
	sum := sha256.New()
	// Headers and padding come on top of the content.
	most := in.limits.Bytes + int64(in.limits.Files)*8<<10 + 1<<20
	bounded := &io.LimitedReader{R: io.TeeReader(stream, sum), N: most}
	buffered := bufio.NewWriterSize(in.spool, 256<<10)
	r := &reception{intake: in, spool: buffered, kinds: map[string]byte{}}

	err := r.readAll(tar.NewReader(bounded))
	if err == nil {
		_, err = io.Copy(io.Discard, bounded)
	}
	if err == nil {
		err = buffered.Flush()
	}
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		return nil, refused
	case bounded.N == 0:
		return nil, refuse(ResultsTooLarge, "the results are a stream of more than %d bytes", most)
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, refuse(ResultsDamaged, "the results are not a whole tar stream")
	case err != nil:
		return nil, err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); digest != "" && got != digest {
		return nil, refuse(ResultsDamaged, "the results have the SHA-256 %s, not %s as the node said", got, digest)
	}
	in.entries += len(r.kinds)
	return r.files, nil
}

func (r *reception) readAll(stream *tar.Reader) error {
	for {
		header, err := stream.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.read(header, stream); err != nil {
			return err
		}
	}
}

func (r *reception) read(header *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(header.Name, "./")
	if header.Typeflag == tar.TypeDir {
		if name = strings.TrimSuffix(name, "/"); name == "" || name == "." {
			return nil
		}
	}
	if problem := r.problem(name, header); problem != "" {
		return refuse(ResultsRefused, "the results were refused: %q %s", name, problem)
	}
	if r.entries+len(r.kinds) > r.limits.Files {
		return refuse(ResultsTooLarge, "the results hold more than %d files and directories", r.limits.Files)
	}
	file := result{path: name, offset: r.bytes}
	switch header.Typeflag {
	case tar.TypeDir:
		return nil // git keeps no directories
	case tar.TypeSymlink:
		file.mode = modeLink
		content, file.size = strings.NewReader(header.Linkname), int64(len(header.Linkname))
	default:
		file.mode, file.size = modeFile, header.Size
		if header.Mode&0o100 != 0 {
			file.mode = modeExecutable
		}
	}
	if r.bytes+file.size > r.limits.Bytes {
		return refuse(ResultsTooLarge, "the results hold more than %d bytes", r.limits.Bytes)
	}
	id, err := r.copy(content, file.size)
	if err != nil {
		return err
	}
	file.id = id
	r.bytes += file.size
	r.files = append(r.files, file)
	return nil
}

// copy spools the content of a file, and returns the id it has in git when that
// is asked for.
func (r *reception) copy(content io.Reader, size int64) (id string, err error) {
	if !r.identify {
		_, err = io.Copy(r.spool, content)
		return "", err
	}
	sum := blobHash(size)
	_, err = io.Copy(io.MultiWriter(r.spool, sum), content)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// blobHash is the hash of a content of a size by which git names it.
func blobHash(size int64) hash.Hash {
	sum := sha1.New() //nolint:gosec // git's name of a content; git itself refuses two with the same one
	fmt.Fprintf(sum, "blob %d\x00", size)
	return sum
}

// problem returns why an entry is refused, or "", and remembers its path.
func (r *reception) problem(name string, header *tar.Header) string {
	if problem := pathProblem(name); problem != "" {
		return problem
	}
	kind := header.Typeflag
	switch kind {
	case tar.TypeReg:
		if header.Mode&0o6000 != 0 {
			return "would run as another user"
		}
	case tar.TypeSymlink:
		if problem := linkProblem(name, header.Linkname); problem != "" {
			return problem
		}
	case tar.TypeDir:
	default:
		return "is " + kindName(kind) + "; only files, directories and symbolic links come back"
	}
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		if above, seen := r.kinds[name[:i]]; seen && above != tar.TypeDir {
			return "lies under " + name[:i] + ", which is no directory"
		}
		r.kinds[name[:i]] = tar.TypeDir
	}
	if before, seen := r.kinds[name]; seen && (kind != tar.TypeDir || before != tar.TypeDir) {
		return "is there twice"
	}
	r.kinds[name] = kind
	return ""
}

func kindName(kind byte) string {
	switch kind {
	case tar.TypeLink:
		return "a hard link"
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a named pipe"
	default:
		return "of an unknown kind"
	}
}

// deletions checks the paths guests say they deleted.
func deletions(parts []Part, limits Limits) error {
	total := 0
	for _, part := range parts {
		if total += len(part.Deleted); total > limits.Files {
			return refuse(ResultsTooLarge, "the results delete more than %d files", limits.Files)
		}
		for _, p := range part.Deleted {
			if problem := pathProblem(p); problem != "" {
				return refuse(ResultsRefused, "the results were refused: the deleted %q %s", p, problem)
			}
		}
	}
	return nil
}
