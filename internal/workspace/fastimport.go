package workspace

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Person is the author of a commit.
type Person struct {
	Name  string
	Email string
}

// committer makes every commit.
var committer = Person{Name: "Tidewait", Email: "tidewait@localhost"}

// signature is a person at a time, as git writes it.
func (p Person) signature(when time.Time) string {
	return fmt.Sprintf("%s <%s> %d +0000", plain(p.Name), plain(p.Email), when.Unix())
}

// plain leaves out what would end a name, an address or a line.
func plain(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == '<' || r == '>' || r == 0x7f {
			return -1
		}
		return r
	}, text))
}

// importCommit runs git fast-import, which makes one commit of what write says
// and returns its id. The commit's ref is removed again before it ends, so no
// branch moves; without its end the input leaves nothing.
func (g git) importCommit(ctx context.Context, scratchRef string, write func(*importer) error) (string, error) {
	return g.slowly().feed(ctx, func(out io.Writer) error {
		i := &importer{out: out}
		// An object of its own gives the pack a name of its own: two imports of
		// the same commit at once would otherwise write the same pack file.
		i.print("blob\n")
		i.data(strings.NewReader(scratchRef), int64(len(scratchRef)))
		if err := write(i); err != nil {
			return err
		}
		i.print("get-mark :1\n", "reset ", scratchRef, "\nfrom ", strings.Repeat("0", 40), "\n\n", "done\n")
		return i.err
	}, "fast-import", "--quiet", "--done", "--depth=0", "--date-format=raw")
}

// importer writes the input of git fast-import. Its first error stops it.
type importer struct {
	out io.Writer
	err error
}

// commit starts a commit. Deletions and files follow.
func (i *importer) commit(ref string, author Person, when time.Time, message, parent string) {
	i.print("commit ", ref, "\nmark :1\nauthor ", author.signature(when), "\ncommitter ", committer.signature(when), "\n")
	i.data(strings.NewReader(message), int64(len(message)))
	if parent != "" {
		i.print("from ", parent, "\n")
	}
}

func (i *importer) delete(path string) { i.print("D ", quotePath(path), "\n") }

// file adds or replaces one file or link with exactly size bytes of content.
func (i *importer) file(path, mode string, content io.Reader, size int64) {
	i.print("M ", mode, " inline ", quotePath(path), "\n")
	i.data(content, size)
}

func (i *importer) print(words ...string) {
	if i.err == nil {
		_, i.err = io.WriteString(i.out, strings.Join(words, ""))
	}
}

func (i *importer) data(content io.Reader, size int64) {
	i.print("data ", strconv.FormatInt(size, 10), "\n")
	if i.err == nil {
		_, i.err = io.CopyN(i.out, content, size)
	}
	i.print("\n")
}

// quotePath quotes as C does, octal for what is not printable.
func quotePath(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(path) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c == 0x7f:
			b.Write([]byte{'\\', '0' + c>>6, '0' + c>>3&7, '0' + c&7})
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
