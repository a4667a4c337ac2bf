package workspace

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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
}

const (
	modeFile       = "100644"
	modeExecutable = "100755"
	modeLink       = "120000"
)

// reception reads a tar stream that a guest made. Only the spool is written.
type reception struct {
	limits Limits
	spool  io.Writer
	kinds  map[string]byte // of every path seen, as tar.TypeReg, tar.TypeSymlink or tar.TypeDir
	files  []result
	bytes  int64
}

// receive reads results from a guest into spool and checks every rule. The
// digest, unless empty, is the SHA-256 of the whole stream in hexadecimal.
func receive(stream io.Reader, spool *os.File, limits Limits, digest string) ([]result, error) {
	sum := sha256.New()
	// Headers and padding come on top of the content.
	most := limits.Bytes + int64(limits.Files)*8<<10 + 1<<20
	bounded := &io.LimitedReader{R: io.TeeReader(stream, sum), N: most}
	buffered := bufio.NewWriterSize(spool, 256<<10)
	r := &reception{limits: limits, spool: buffered, kinds: map[string]byte{}}

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
	case errors.Is(err, tar.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, refuse(ResultsDamaged, "the results are not a whole tar stream")
	case err != nil:
		return nil, err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); digest != "" && got != digest {
		return nil, refuse(ResultsDamaged, "the results have the SHA-256 %s, not %s as the node said", got, digest)
	}
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
	if len(r.kinds) > r.limits.Files {
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
	if _, err := io.Copy(r.spool, content); err != nil {
		return err
	}
	r.bytes += file.size
	r.files = append(r.files, file)
	return nil
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

// deletions checks the paths a guest says it deleted.
func deletions(paths []string, limits Limits) error {
	if len(paths) > limits.Files {
		return refuse(ResultsTooLarge, "the results delete more than %d files", limits.Files)
	}
	for _, p := range paths {
		if problem := pathProblem(p); problem != "" {
			return refuse(ResultsRefused, "the results were refused: the deleted %q %s", p, problem)
		}
	}
	return nil
}
