// Package hostile is a corpus of what a machine may send that it must not: tar
// streams as results. Whoever takes results from a machine is tested with all of
// it.
package hostile

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
)

// Archive is one tar stream, and how the two ends that read it refuse it. Both
// read it on their own: the gateway does not trust a node more than a node its
// machines.
type Archive struct {
	Name string
	Tar  []byte
	// Node is a part of the sentence with which the node that has the machine
	// refuses it; empty: it passes, since it is harmless there.
	Node string
	// Gateway is a part of the sentence with which the gateway refuses it; empty:
	// it becomes a commit.
	Gateway string
}

// Bounds of results for which the corpus is made.
const (
	Files = 20
	Bytes = 1000
)

// Archives returns the corpus.
func Archives() []Archive {
	var all []Archive
	for _, group := range [][]Archive{escapes(), names(), gitInternals(), links(), kinds(), bombs(), broken(), harmless()} {
		all = append(all, group...)
	}
	return all
}

const (
	unclean  = "is not a clean path inside the workspace"
	notOurs  = "is neither a regular file nor a directory nor a symbolic link"
	inGit    = "lies in a .git directory"
	hasGit   = "has .git in its name"
	hasEmpty = "has an empty part in its name"
)

// escapes would be written outside of the directory they are unpacked in.
func escapes() []Archive {
	return []Archive{
		{"a parent", of(file("../x", "")), unclean, "has .. in its name"},
		{"a parent inside", of(file("a/../../x", "")), unclean, "has .. in its name"},
		{"a parent that comes back", of(file("a/../x", "")), unclean, "has .. in its name"},
		{"a parent as directory", of(dir("../")), unclean, "has .. in its name"},
		{"many parents", of(file(strings.Repeat("../", 60)+"etc/cron.d/x", "")), unclean, "has .. in its name"},
		{"an absolute name", of(file("/etc/cron.d/x", "")), unclean, "has an absolute name"},
		{"two slashes", of(file("//etc/cron.d/x", "")), unclean, "has an absolute name"},
		{"a long absolute name", pax("x", map[string]string{"path": "/tmp/" + strings.Repeat("x", 200)}), unclean, "has an absolute name"},
		{"a parent in an extended header", pax("x", map[string]string{"path": "../" + strings.Repeat("x", 200)}), unclean, "has .. in its name"},
		{"a parent in a long name of GNU's", gnuLong("../"+strings.Repeat("x", 200), 'L'), unclean, "has .. in its name"},
		{"a prefix that is a parent", prefixed("..", "x"), unclean, "has .. in its name"},
	}
}

// names are of every kind that some file system or terminal takes amiss.
func names() []Archive {
	return []Archive{
		{"no name", of(file("", "")), unclean, "has no name"},
		{"a dot as file", of(file(".", "")), unclean, hasEmpty},
		{"an empty part", of(file("a//b", "")), unclean, hasEmpty},
		{"a dot part", of(file("a/./b", "")), unclean, hasEmpty},
		{"a link that ends in a slash", of(link("a/", "b")), unclean, hasEmpty},
		{"no UTF-8", of(file("caf\xe9", "")), "is not valid UTF-8", "is not UTF-8"},
		{"overlong UTF-8", of(file("\xc0\xae\xc0\xae/x", "")), "is not valid UTF-8", "is not UTF-8"},
		{"a surrogate", of(file("\xed\xa0\x80", "")), "is not valid UTF-8", "is not UTF-8"},
		{"a terminal's escape", of(file("a\x1b[2Jb", "")), "", "has a control character in its name"},
		{"a newline with a command of fast-import", of(file("a\nM 100644 inline .git/config", "")), "", "has a control character in its name"},
		{"a carriage return", of(file("a\rb", "")), "", "has a control character in its name"},
		{"a name of 256 bytes", of(file(strings.Repeat("n", 256), "")), "", "has a part of more than 255 bytes in its name"},
		{"a path of more than 4096 bytes", of(file(strings.Repeat("1234567/", 512)+"f", "")), "is longer than 4096 bytes", "has a name of more than 4096 bytes"},
		{"65 directories", of(file(strings.Repeat("d/", 65)+"f", "")), "", "lies more than 64 directories deep"},
	}
}

// gitInternals are what git, or a file system under it, takes for a repository's
// own files.
func gitInternals() []Archive {
	return []Archive{
		{"a hook", of(file(".git/hooks/post-checkout", "")), inGit, hasGit},
		{"the settings", of(file(".git/config", "[core]\n\tfsmonitor = touch /tmp/x\n")), inGit, hasGit},
		{"a hook below", of(file("sub/.git/hooks/pre-commit", "")), inGit, hasGit},
		{"a directory", of(dir("sub/.git/")), inGit, hasGit},
		{"a file that names another repository", of(file(".git", "gitdir: /tmp/x\n")), inGit, hasGit},
		{"other letters", of(file("a/.GiT/config", "")), inGit, hasGit},
		{"trailing dots", of(file(".git. ./config", "")), "", hasGit},
		{"the short name of Windows", of(file("GIT~1/config", "")), "", hasGit},
		{"a stream of Windows", of(file(".git::$INDEX_ALLOCATION/config", "")), "", hasGit},
		{"a backslash", of(file(`a\.git\config`, "")), "", hasGit},
		{"a joiner that macOS ignores", of(file(".g\u200dit/config", "")), "", hasGit},
		{"a byte order mark that macOS ignores", of(file("\ufeff.git/config", "")), "", hasGit},
		{"a link as .gitmodules", of(link(".gitmodules", "x")), "", "is a link where git reads its settings"},
		{"a link as .gitattributes", of(link("a/.GitAttributes", "x")), "", "is a link where git reads its settings"},
	}
}

// links lead out, or let what follows them be written elsewhere.
func links() []Archive {
	return []Archive{
		{"an absolute link", of(link("l", "/etc/passwd")), "", "is a link to the absolute name /etc/passwd"},
		{"a link out", of(link("d/l", "../../x")), "", "is a link out of the workspace: ../../x"},
		{"a link out by a link", of(link("d/e/l", "../.."), link("m", "d/e/l/../x")), "", "is a link with .. after a name: d/e/l/../x"},
		{"a link into .git", of(link("l", ".git/config")), "", "is a link into .git"},
		{"a link to nothing", of(link("l", "")), "has an impossible target", "is a link to nothing"},
		{"a link to a name of 4097 bytes", of(link("l", strings.Repeat("x", 4097))), "has an impossible target", "is a link to a name of more than 4096 bytes"},
		{"a link to a terminal's escape", of(link("l", "a\x07")), "", "is a link to a name that is not plain text"},
		{"a file under a link", of(link("l", "d"), file("l/x", "")), "", "lies under l, which is no directory"},
		{"a file under a link, by a link", of(dir("d/"), link("d/l", "."), file("d/l/x", "")), "", "lies under d/l, which is no directory"},
		{"a file over a link", of(link("l", "x"), file("l", "")), "", "is there twice"},
		{"a link over a directory", of(file("d/x", ""), link("d", "e")), "", "is there twice"},
		{"a hard link", of(file("a", ""), tar.Header{Name: "b", Typeflag: tar.TypeLink, Linkname: "a"}), notOurs, "is a hard link"},
		{"a hard link out", of(tar.Header{Name: "b", Typeflag: tar.TypeLink, Linkname: "/etc/shadow"}), notOurs, "is a hard link"},
	}
}

// kinds are not files, directories or links, or more than their kind may be.
func kinds() []Archive {
	return []Archive{
		{"a block device", of(tar.Header{Name: "b", Typeflag: tar.TypeBlock, Devmajor: 8}), notOurs, "is a device"},
		{"a character device", of(tar.Header{Name: "c", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}), notOurs, "is a device"},
		{"a named pipe", of(tar.Header{Name: "p", Typeflag: tar.TypeFifo}), notOurs, "is a named pipe"},
		{"a kind that nobody knows", typed('Z'), notOurs, "of an unknown kind"},
		{"a contiguous file", typed(tar.TypeCont), notOurs, "of an unknown kind"},
		{"setuid", of(tar.Header{Name: "s", Mode: 0o4755}), "only permissions are allowed", "would run as another user"},
		{"setgid", of(tar.Header{Name: "s", Mode: 0o2755}), "only permissions are allowed", "would run as another user"},
		{"a device's mode on a file", of(tar.Header{Name: "s", Mode: 0o60644}), "only permissions are allowed", ""},
		{"a file under a file", of(file("a", ""), file("a/b/c", "")), "", "lies under a, which is no directory"},
		{"a file twice", of(file("a", "1"), file("a", "2")), "", "is there twice"},
	}
}

// bombs are small and claim to be large, or are many.
func bombs() []Archive {
	const bytes, count = "the results hold more than 1000 bytes", "the results hold more than 20 files and directories"
	tooLarge := "the results are larger than 20 files and 1000 bytes"
	many := make([]tar.Header, Files+1)
	for i := range many {
		many[i] = file(fmt.Sprintf("f%02d", i), "")
	}
	return []Archive{
		{"one file too many", of(many...), tooLarge, count},
		{"directories without end", of(file(strings.Repeat("d/", 30)+"f", "")), "", count},
		{"one byte too many", of(file("a", strings.Repeat("x", Bytes)), file("b", "x")), tooLarge, bytes},
		{"a file of a terabyte that is not there", declared(1 << 40), tooLarge, bytes},
		{"a file of eight exabytes", declared(1<<63 - 1), tooLarge, bytes},
		{"a sparse file of a terabyte", sparse("1099511627776"), tooLarge, bytes},
		{"extended headers without end", extended(tar.TypeXHeader, 300), tooLarge, "the results are a stream of more than"},
		{"a header for all files", extended(tar.TypeXGlobalHeader, 1), notOurs, "of an unknown kind"},
	}
}

// broken streams are not what tar writes.
func broken() []Archive {
	whole := of(file("a", strings.Repeat("x", 900)))
	header := func(change func(block []byte)) []byte {
		b := of(file("a", "x"))
		change(b)
		return b
	}
	return []Archive{
		{"text", bytes.Repeat([]byte("rubbish "), 128), "a broken tar stream", "not a whole tar stream"},
		{"half a file", whole[:700], "broke off", "not a whole tar stream"},
		{"half a header", whole[:200], "broke off", "not a whole tar stream"},
		{"another checksum", header(func(b []byte) { b[0] = 'b' }), "a broken tar stream", "not a whole tar stream"},
		{"a size that is no number", header(func(b []byte) { copy(b[124:], "99999999999z"); sum(b) }), "a broken tar stream", "not a whole tar stream"},
		{"a size below zero", header(func(b []byte) { copy(b[124:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"); sum(b) }), "a broken tar stream", "not a whole tar stream"},
		{"an extended header that never ends", pax("x", map[string]string{"comment": strings.Repeat("x", 1<<20)}), "a broken tar stream", "not a whole tar stream"},
	}
}

// harmless archives resemble hostile ones, and are taken.
func harmless() []Archive {
	return []Archive{
		{"nothing", of(), "", ""},
		{"no end", of()[:0], "", ""},
		{"names that only look odd", of(file("-rf", ""), file(" a ", ""), file("a\\b", ""), file("CON", ""), file("..a", ""), file("a..", ""), file("ä☃", "")), "", ""},
		{"files of git's that people write", of(file(".gitignore", "x\n"), file(".github/x", ""), file("git~x", "")), "", ""},
		{"a bare repository's names", of(file("HEAD", "ref: refs/heads/x\n"), file("config", ""), dir("objects/"), dir("refs/")), "", ""},
		{"links inside", of(link("d/e/l", "../../README"), link("here", "."), link("loop", "loop")), "", ""},
		{"letters that differ in case", of(file("a", "1"), file("A", "2")), "", ""},
		{"owners and times", of(tar.Header{Name: "a", Uid: 0, Uname: "root", Gid: 1 << 20}), "", ""},
	}
}
