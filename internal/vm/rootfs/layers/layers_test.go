package layers_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/vm"
	"tidewait/internal/vm/rootfs/erofs"
	"tidewait/internal/vm/rootfs/layers"
)

// The entries of layers: a name that ends with a slash is a directory.
func dir(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }

func link(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}
}

func hard(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target}
}

func file(name, content string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(content)), Mode: 0o644, Uname: content}
}

// layer is a tar stream. The content of a file is the name of its user.
func layer(t *testing.T, entries ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, h := range entries {
		content := h.Uname
		h.Uname = ""
		require.NoError(t, tw.WriteHeader(&h))
		_, err := io.WriteString(tw, content)
		require.NoError(t, err)
	}
	require.NoError(t, tw.Close())
	return &b
}

type image struct {
	tree *layers.Tree
	file *os.File
	w    *erofs.Writer
}

func newImage(t *testing.T, l layers.Limits) *image {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	w := erofs.NewWriter(f)
	return &image{layers.New(w, l), f, w}
}

// listing describes every file of a tree in a line.
func listing(root *erofs.Inode) []string {
	var lines []string
	var walk func(prefix string, dir *erofs.Inode)
	walk = func(prefix string, dir *erofs.Inode) {
		for _, name := range slices.Sorted(maps.Keys(dir.Children)) {
			child := dir.Children[name]
			line := fmt.Sprintf("%s%s %o", prefix, name, child.Mode)
			if child.Link != "" {
				line += " -> " + child.Link
			}
			if size := child.Content.Size(); size > 0 {
				line += fmt.Sprintf(" %d", size)
			}
			lines = append(lines, line)
			if child.IsDir() {
				walk(prefix+name+"/", child)
			}
		}
	}
	walk("/", root)
	return lines
}

var plenty = layers.Limits{Files: 1000, Bytes: 1 << 20}

func TestLayersLieOverEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		layers [][]tar.Header
		want   []string
	}{
		"files and directories": {
			[][]tar.Header{{dir("./"), dir("./a/"), file("./a/b", "12"), file("/abs", "1"), file("x/y/z", "123")}},
			[]string{"/a 40755", "/a/b 100644 2", "/abs 100644 1", "/x 40755", "/x/y 40755", "/x/y/z 100644 3"},
		},
		"a name that is there twice": {[][]tar.Header{{file("a", "1"), file("a", "22")}}, []string{"/a 100644 2"}},
		"a file over a file":         {[][]tar.Header{{file("a", "1")}, {file("a", "22")}}, []string{"/a 100644 2"}},
		"a file over a directory":    {[][]tar.Header{{file("a/b", "1")}, {file("a", "22")}}, []string{"/a 100644 2"}},
		"a directory over a file":    {[][]tar.Header{{file("a", "1")}, {dir("a/"), file("a/b", "22")}}, []string{"/a 40755", "/a/b 100644 2"}},
		"a directory over one": {
			[][]tar.Header{{file("a/b", "1")}, {{Name: "a", Typeflag: tar.TypeDir, Mode: 0o1700}}},
			[]string{"/a 41700", "/a/b 100644 1"},
		},
		"a whiteout":                   {[][]tar.Header{{file("a", "1"), file("b", "1")}, {file(".wh.a", "")}}, []string{"/b 100644 1"}},
		"a whiteout of a directory":    {[][]tar.Header{{file("a/b/c", "1")}, {file("a/.wh.b", "")}}, []string{"/a 40755"}},
		"a whiteout of nothing":        {[][]tar.Header{{file("a", "1")}, {file(".wh.b", "")}}, []string{"/a 100644 1"}},
		"a whiteout of what is lower":  {[][]tar.Header{{file("a", "1")}, {file("a", "22"), file(".wh.a", "")}}, []string{"/a 100644 2"}},
		"a whiteout first":             {[][]tar.Header{{file("a", "1")}, {file(".wh.a", ""), file("a", "22")}}, []string{"/a 100644 2"}},
		"a whiteout of a replaced one": {[][]tar.Header{{file("a/old", "1")}, {file("a/new", "22"), file(".wh.a", "")}}, []string{"/a 40755", "/a/new 100644 2"}},
		"an opaque directory": {
			[][]tar.Header{{file("a/old", "1"), file("a/deep/old", "1"), file("b", "1")}, {dir("a/"), file("a/new", "22"), file("a/.wh..wh..opq", "")}},
			[]string{"/a 40755", "/a/new 100644 2", "/b 100644 1"},
		},
		"an opaque directory with new ones below": {
			[][]tar.Header{{file("a/d/old", "1")}, {file("a/.wh..wh..opq", ""), file("a/d/new", "22")}},
			[]string{"/a 40755", "/a/d 40755", "/a/d/new 100644 2"},
		},
		"an opaque root":   {[][]tar.Header{{file("a", "1")}, {file(".wh..wh..opq", ""), file("b", "1")}}, []string{"/b 100644 1"}},
		"of other systems": {[][]tar.Header{{file("a", "1")}, {file(".wh..wh.plnk", ""), dir(".wh..wh.orph/")}}, []string{"/a 100644 1"}},
		"through a symbolic link": {
			[][]tar.Header{{dir("usr/lib/"), link("lib", "usr/lib"), link("abs", "/usr/lib")}, {file("lib/a", "1"), file("abs/b", "1")}},
			[]string{"/abs 120777 -> /usr/lib", "/lib 120777 -> usr/lib", "/usr 40755", "/usr/lib 40755", "/usr/lib/a 100644 1", "/usr/lib/b 100644 1"},
		},
		"a link that would lead out": {
			[][]tar.Header{{link("out", "../../../tmp"), file("out/a", "1"), link("passwd", "/etc/passwd")}},
			[]string{"/out 120777 -> ../../../tmp", "/passwd 120777 -> /etc/passwd", "/tmp 40755", "/tmp/a 100644 1"},
		},
		"a file in place of a link": {[][]tar.Header{{link("a", "/etc/passwd")}, {file("a", "1")}}, []string{"/a 100644 1"}},
		"hard links":                {[][]tar.Header{{file("a", "12")}, {hard("b", "./a"), file("a", "1"), hard("d/c", "/b")}}, []string{"/a 100644 1", "/b 100644 2", "/d 40755", "/d/c 100644 2"}},
		"devices": {
			[][]tar.Header{{{Name: "c", Typeflag: tar.TypeChar, Mode: 0o600, Devmajor: 1, Devminor: 3}, {Name: "b", Typeflag: tar.TypeBlock}, {Name: "p", Typeflag: tar.TypeFifo}}},
			[]string{"/b 60000", "/c 20600", "/p 10000"},
		},
		"setuid": {[][]tar.Header{{{Name: "su", Typeflag: tar.TypeReg, Mode: 0o104755}}}, []string{"/su 104755"}},
	} {
		t.Run(name, func(t *testing.T) {
			i := newImage(t, plenty)
			for _, entries := range c.layers {
				require.NoError(t, i.tree.Add(layer(t, entries...)))
			}
			require.Equal(t, c.want, listing(i.tree.Root()))
			require.NoError(t, i.w.Finish(i.tree.Root()))
		})
	}
}

func TestLayersThatAreRefused(t *testing.T) {
	deep := []tar.Header{link("0", ".")}
	for i := range 50 {
		deep = append(deep, link(fmt.Sprint(i+1), fmt.Sprint(i)))
	}
	few := layers.Limits{Files: 3, Bytes: 10}
	for name, c := range map[string]struct {
		limits  layers.Limits
		entries []tar.Header
		want    string
	}{
		"a parent":                  {plenty, []tar.Header{file("../a", "1")}, `the image has a file that leads out of it: "../a"`},
		"a parent inside":           {plenty, []tar.Header{file("a/../../b", "1")}, `the image has a file that leads out of it: "a/../../b"`},
		"a hard link to a parent":   {plenty, []tar.Header{hard("a", "../../etc/shadow")}, `the image has a file that leads out of it: "../../etc/shadow"`},
		"a hard link to nothing":    {plenty, []tar.Header{hard("a", "/etc/shadow")}, `the image has a hard link to what is no file of it: "a" to "/etc/shadow"`},
		"a hard link to itself":     {plenty, []tar.Header{hard("a", "a")}, `the image has a hard link to what is no file of it: "a" to "a"`},
		"a hard link to a dir":      {plenty, []tar.Header{dir("d/"), hard("a", "d")}, `the image has a hard link to what is no file of it: "a" to "d"`},
		"a hard link to all":        {plenty, []tar.Header{hard("a", "/")}, `the image has a hard link to its root directory: "a"`},
		"below a file":              {plenty, []tar.Header{file("a", "1"), file("a/b", "1")}, `the image has a file below "a", which is no directory`},
		"too many files":            {few, []tar.Header{file("a", ""), file("b", ""), file("c", ""), file("d", "")}, "the image has more than 3 files"},
		"too many directories":      {few, []tar.Header{file("a/b/c/d", "")}, "the image has more than 3 files"},
		"too many of the same name": {few, []tar.Header{file("a", ""), file("a", ""), file("a", ""), file("a", "")}, "the image has more than 3 files"},
		"too much":                  {layers.Limits{Files: 9, Bytes: 1 << 20}, []tar.Header{file("a", strings.Repeat("x", 1<<20)), file("b", "1")}, "the image is larger than 1 MiB"},
		"too much of one name":      {layers.Limits{Files: 9, Bytes: 1 << 20}, []tar.Header{file("a", strings.Repeat("x", 1<<20)), file("a", "1")}, "the image is larger than 1 MiB"},
		"links for ever":            {plenty, []tar.Header{link("a", "b"), link("b", "a"), file("a/x", "1")}, "the image has a file behind more than 40 symbolic links"},
		"too many links":            {plenty, append(deep, file("50/x", "1")), "the image has a file behind more than 40 symbolic links"},
		"a deep directory":          {layers.Limits{Files: 2000, Bytes: 10}, []tar.Header{file(strings.Repeat("n/", 1024)+"n", "1")}, "the image has more than 1024 directories in each other"},
		"a long name":               {plenty, []tar.Header{file(strings.Repeat("n", 256), "1")}, "the image has a file whose name cannot be used: the name \"" + strings.Repeat("n", 40) + "\"… is longer than 255 bytes"},
		"a long path":               {plenty, []tar.Header{file(strings.Repeat("n/", 2049)+"n", "1")}, "the image has a file whose name is longer than 4096 bytes or has a zero byte"},
		"an empty link":             {plenty, []tar.Header{link("a", "")}, `the image has a symbolic link with a target of 0 bytes: "a"`},
		"an unknown type":           {plenty, []tar.Header{{Name: "a", Typeflag: 'Z'}}, `the image has a file of a type that is not known: "a", type 'Z'`},
	} {
		t.Run(name, func(t *testing.T) {
			err := newImage(t, c.limits).tree.Add(layer(t, c.entries...))
			var f *vm.Failure
			require.ErrorAs(t, err, &f)
			require.Equal(t, vm.Failure{Code: vm.ImageInvalid, Message: c.want}, *f)
		})
	}
}

// TestWhiteoutsCostWhatTheyHide: each directory is looked through once in a layer,
// however often it is hidden, and however much of it the layer made itself.
func TestWhiteoutsCostWhatTheyHide(t *testing.T) {
	const many = 5_000
	deep := strings.Repeat("n/", 1000)
	var second []tar.Header
	for n := range many {
		second = append(second, file(fmt.Sprintf("%s%d", deep, n), ""))
	}
	for range many {
		second = append(second, file(".wh.n", ""), file(".wh..wh..opq", ""))
	}
	i := newImage(t, layers.Limits{Files: 10 * many, Bytes: 1 << 20})
	require.NoError(t, i.tree.Add(layer(t, file(deep+"old", "1"), file("old", "1"))))
	require.NoError(t, i.tree.Add(layer(t, second...))) // long, if each looked again

	found := 0
	for dir := i.tree.Root(); dir != nil; dir = dir.Children["n"] {
		require.NotContains(t, dir.Children, "old")
		found += len(dir.Children)
	}
	require.Equal(t, 1000+many, found)
}

func TestStreamsThatAreNone(t *testing.T) {
	whole, err := io.ReadAll(layer(t, file("a", strings.Repeat("x", 3000))))
	require.NoError(t, err)
	for name, stream := range map[string]string{
		"garbage": strings.Repeat("garbage ", 100), "cut in a header": string(whole[:100]), "cut in a file": string(whole[:1000]),
	} {
		err := newImage(t, plenty).tree.Add(strings.NewReader(stream))
		var f *vm.Failure
		require.ErrorAs(t, err, &f, name)
		require.Equal(t, vm.ImageInvalid, f.Code, name)
		require.Contains(t, f.Message, "a layer is no tar stream", name)
	}
	broken := io.MultiReader(bytes.NewReader(whole[:1000]), &failing{})
	require.Equal(t, errBroken, newImage(t, plenty).tree.Add(broken), "what broke is told, not what it looked like")
}

type failing struct{}

var errBroken = fmt.Errorf("the connection broke")

func (*failing) Read([]byte) (int, error) { return 0, errBroken }

// FuzzAdd takes any stream: it ends, with a tree that can be written or a refusal.
func FuzzAdd(f *testing.F) {
	for _, entries := range [][]tar.Header{
		{file("a/b", "12"), link("l", "a"), file("l/x", "1"), hard("h", "a/b")},
		{dir("a/"), file("a/.wh..wh..opq", ""), file(".wh.a", "")},
	} {
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		for _, h := range entries {
			content := h.Uname
			h.Uname = ""
			_ = tw.WriteHeader(&h)
			_, _ = io.WriteString(tw, content)
		}
		_ = tw.Close()
		f.Add(b.Bytes(), b.Bytes())
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		w := erofs.NewWriter(nowhere{})
		tree := layers.New(w, layers.Limits{Files: 100, Bytes: 1 << 16})
		for _, stream := range [][]byte{first, second} {
			if err := tree.Add(bytes.NewReader(stream)); err != nil {
				var f *vm.Failure
				require.ErrorAs(t, err, &f)
				return
			}
		}
		require.NoError(t, w.Finish(tree.Root()))
	})
}

// nowhere takes a file system and forgets it.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error)         { return len(p), nil }
func (nowhere) Seek(to int64, _ int) (int64, error) { return to, nil }
