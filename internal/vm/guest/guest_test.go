package guest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/vm"
)

// readOnly is a stream of bytes from a guest.
type readOnly struct{ io.Reader }

func (readOnly) Write(p []byte) (int, error) { return len(p), nil }
func (readOnly) Close() error                { return nil }

func TestFrames(t *testing.T) {
	for _, c := range []struct {
		name    string
		bytes   []byte
		kind    Kind
		payload string
		err     error
	}{
		{"with a payload", []byte{0, 0, 0, 3, 6, 1, 'x'}, KindLog, "\x01x", nil},
		{"without a payload", []byte{0, 0, 0, 1, 14}, KindBye, "", nil},
		{"of an unknown kind", []byte{0, 0, 0, 1, 200}, 200, "", nil},
		{"of no bytes", []byte{0, 0, 0, 0, 1}, 0, "", ErrProtocol},
		{"of more than 1 MiB", []byte{0, 0x10, 0, 1, 1}, 0, "", ErrProtocol},
		{"of 4 GiB", []byte{0xff, 0xff, 0xff, 0xff, 1}, 0, "", ErrProtocol},
		{"that breaks off", []byte{0, 0, 0, 3, 6, 1}, 0, "", io.ErrUnexpectedEOF},
		{"whose length breaks off", []byte{0, 0}, 0, "", io.ErrUnexpectedEOF},
		{"none at all", nil, 0, "", io.EOF},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind, payload, err := NewConn(readOnly{bytes.NewReader(c.bytes)}).Read()
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.kind, kind)
			require.Equal(t, c.payload, string(payload))
		})
	}
}

func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payloads := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 3000)).Draw(t, "payloads")
		var wire buffer
		w := NewConn(&wire)
		for i, p := range payloads {
			require.NoError(t, w.Write(Kind(i), p[:len(p)/2], p[len(p)/2:]))
		}
		r := NewConn(&wire)
		for i, p := range payloads {
			kind, payload, err := r.Read()
			require.NoError(t, err)
			require.Equal(t, Kind(i), kind)
			require.Equal(t, string(p), string(payload))
		}
		_, _, err := r.Read()
		require.Equal(t, io.EOF, err)
	})
}

type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

func TestWriteRefusesLargeFrames(t *testing.T) {
	var wire buffer
	c := NewConn(&wire)
	require.NoError(t, c.Write(KindTar, make([]byte, MaxFrame-1)))
	require.EqualError(t, c.Write(KindTar, make([]byte, MaxFrame)),
		"a TAR frame of 1048577 bytes is larger than the 1048576 that are allowed")
}

// FuzzSession lets a guest say anything at all in every step.
func FuzzSession(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 6, 1, 'x'}, byte(1))
	f.Add(framed(KindExit, []byte(`{"code":1}`)), byte(1))
	f.Add(append(framed(KindTar, archive(f, file("a", "x"))), framed(KindTarEnd, []byte(`{}`))...), byte(2))
	f.Add(append(framed(KindDeleted, []byte(`["../x"]`)), framed(KindTarEnd, []byte(`{"deleted":1}`))...), byte(2))
	f.Fuzz(func(t *testing.T, said []byte, step byte) {
		s := &Session{conn: NewConn(readOnly{bytes.NewReader(said)})}
		limits := vm.Limits{Files: 10, Bytes: 1000}
		switch step % 3 {
		case 0:
			_, _ = s.Put(t.Context(), strings.NewReader("x"))
		case 1:
			lines := 0
			_, _ = s.Exec(t.Context(), Exec{}, 0, func(_ string, line []byte) {
				lines++
				require.NotContains(t, string(line), "\n")
				require.LessOrEqual(t, len(line), vm.MaxLine)
			})
			require.LessOrEqual(t, lines, len(said)+1)
		case 2:
			var w bytes.Buffer
			result, err := s.Get(t.Context(), nil, limits, &w)
			if err == nil {
				require.LessOrEqual(t, result.Files, limits.Files)
				require.LessOrEqual(t, result.Bytes, limits.Bytes)
				for _, d := range result.Deleted {
					require.NoError(t, CheckName(d))
				}
			}
		}
	})
}

func framed(kind Kind, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload)+1))
	return append(append(b, byte(kind)), payload...)
}

type tarFile struct {
	header  tar.Header
	content string
}

func file(name, content string) tarFile {
	return tarFile{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}, content}
}

func archive(tb testing.TB, files ...tarFile) []byte {
	tb.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, f := range files {
		require.NoError(tb, tw.WriteHeader(&f.header))
		_, err := io.WriteString(tw, f.content)
		require.NoError(tb, err)
	}
	require.NoError(tb, tw.Close())
	return buf.Bytes()
}

// collectFrom lets a guest answer GET with the given frames.
func collectFrom(t *testing.T, limits vm.Limits, frames ...[]byte) (vm.Result, error) {
	t.Helper()
	s := &Session{conn: NewConn(readOnly{bytes.NewReader(bytes.Join(frames, nil))})}
	return s.Get(t.Context(), nil, limits, io.Discard)
}

func TestHostileResults(t *testing.T) {
	limits := vm.Limits{Files: 3, Bytes: 100}
	end := framed(KindTarEnd, []byte(`{}`))
	entry := func(change func(h *tar.Header)) []byte {
		f := file("a", "x")
		change(&f.header)
		if f.header.Typeflag != tar.TypeReg {
			f.content, f.header.Size = "", 0
		}
		return framed(KindTar, archive(t, f))
	}
	name := func(name string) []byte { return entry(func(h *tar.Header) { h.Name = name }) }
	kind := func(k byte) []byte {
		return entry(func(h *tar.Header) { h.Typeflag, h.Linkname = k, "b" })
	}
	for _, c := range []struct {
		name   string
		frames [][]byte
		code   vm.FailureCode
		part   string
	}{
		{"a parent", [][]byte{name("../a"), end}, vm.CollectFailed, `"../a" is not a clean path`},
		{"a parent inside", [][]byte{name("a/../../b"), end}, vm.CollectFailed, "is not a clean path"},
		{"an absolute path", [][]byte{name("/etc/passwd"), end}, vm.CollectFailed, "is not a clean path"},
		{"a dot", [][]byte{name("./a"), end}, vm.CollectFailed, "is not a clean path"},
		{"a git hook", [][]byte{name(".git/hooks/post-commit"), end}, vm.CollectFailed, "lies in a .git directory"},
		{"a git hook below", [][]byte{name("sub/.GIT/config"), end}, vm.CollectFailed, "lies in a .git directory"},
		{"no UTF-8", [][]byte{name("a\xff"), end}, vm.CollectFailed, "not valid UTF-8"},
		{"a hard link", [][]byte{kind(tar.TypeLink), end}, vm.CollectFailed, "neither a regular file"},
		{"a device", [][]byte{kind(tar.TypeBlock), end}, vm.CollectFailed, "neither a regular file"},
		{"a pipe", [][]byte{kind(tar.TypeFifo), end}, vm.CollectFailed, "neither a regular file"},
		{"setuid", [][]byte{entry(func(h *tar.Header) { h.Mode = 0o4755 }), end}, vm.CollectFailed, "only permissions are allowed"},
		{"a deleted parent", [][]byte{framed(KindTar, archive(t)), framed(KindDeleted, []byte(`["../x"]`)), end}, vm.CollectFailed, "deleted what it must not"},
		{"too many files", [][]byte{framed(KindTar, archive(t, file("a", ""), file("b", ""), file("c", ""), file("d", ""))), end}, vm.ResultsTooLarge, "larger than 3 files"},
		{"too many bytes", [][]byte{framed(KindTar, archive(t, file("a", strings.Repeat("x", 60)), file("b", strings.Repeat("x", 41)))), end}, vm.ResultsTooLarge, "100 bytes"},
		{"endless padding", [][]byte{bytes.Repeat(framed(KindTar, make([]byte, 1<<19)), 4), end}, vm.ResultsTooLarge, "larger"},
		{"rubbish", [][]byte{framed(KindTar, bytes.Repeat([]byte("rubbish "), 1000)), end}, vm.CollectFailed, "broken tar stream"},
		{"half a file", [][]byte{framed(KindTar, archive(t, file("a", "x"))[:512]), end}, vm.CollectFailed, "broke off"},
		{"another digest", [][]byte{framed(KindTar, archive(t, file("a", "x"))), framed(KindTarEnd, []byte(`{"files":1,"bytes":1,"xxh64":"00"}`))}, vm.CollectFailed, "did not arrive whole"},
		{"a frame out of order", [][]byte{framed(KindExit, []byte(`{}`))}, vm.MachineDied, "EXIT came where TAR_END was due"},
		{"the end of the connection", [][]byte{framed(KindTar, archive(t, file("a", "x")))}, vm.MachineDied, "its connection ended"},
		{"a failure in the midst", [][]byte{framed(KindTar, archive(t, file("a", "x"))[:600]), framed(KindFail, []byte(`{"code":"collect_failed","message":"a became shorter"}`))}, vm.CollectFailed, "a became shorter"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := collectFrom(t, limits, c.frames...)
			var f *vm.Failure
			require.ErrorAs(t, err, &f)
			require.Equal(t, c.code, f.Code, f.Message)
			require.Contains(t, f.Message, c.part)
		})
	}
}

func TestSinkFailure(t *testing.T) {
	full := errors.New("the disk is full")
	s := &Session{conn: NewConn(readOnly{bytes.NewReader(framed(KindTar, archive(t, file("a", "x"))))})}
	_, err := s.Get(t.Context(), nil, vm.Limits{Files: 3, Bytes: 100}, failingWriter{full})
	require.ErrorIs(t, err, full)
	require.NotErrorAs(t, err, new(*vm.Failure))
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// guestSays answers a session over a connection as the given function does.
func guestSays(t *testing.T, answer func(c *Conn)) *Session {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	go answer(NewConn(theirs))
	return &Session{conn: NewConn(ours)}
}

func TestPutComparesDigests(t *testing.T) {
	s := guestSays(t, func(c *Conn) {
		for {
			if _, payload, err := c.Read(); err != nil || len(payload) == 0 {
				break
			}
		}
		_ = c.WriteJSON(KindPutOK, Tally{Sum: "0000"})
	})
	_, err := s.Put(t.Context(), strings.NewReader("some bytes"))
	requireCode(t, err, vm.InjectFailed, `the sum "0000"`)
}

func TestPutOfUnreadableSource(t *testing.T) {
	s := guestSays(t, func(c *Conn) { _, _, _ = c.Read() })
	_, err := s.Put(t.Context(), failingReader{})
	requireCode(t, err, vm.InjectFailed, "the object is gone")
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("the object is gone") }

func TestPutRefusedEarly(t *testing.T) {
	s := guestSays(t, func(c *Conn) {
		_, _, _ = c.Read()
		_ = c.WriteJSON(KindFail, Fail{Code: vm.InjectFailed, Message: "no space"})
		for {
			if _, _, err := c.Read(); err != nil {
				return
			}
		}
	})
	_, err := s.Put(t.Context(), strings.NewReader(strings.Repeat("x", 10*ChunkSize)))
	requireCode(t, err, vm.InjectFailed, "no space")
}

func TestStepEndsWithContext(t *testing.T) {
	late := &vm.Failure{Code: vm.StepTimeout, Message: "too slow"}
	s := guestSays(t, func(c *Conn) { _, _, _ = c.Read() })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	_, err := s.Get(ctx, nil, vm.Limits{}, io.Discard)
	requireCode(t, err, vm.StepTimeout, "too slow")
}

func TestOtherProtocol(t *testing.T) {
	hello, err := json.Marshal(Hello{Proto: 1})
	require.NoError(t, err)
	_, err = Open(t.Context(), readOnly{bytes.NewReader(framed(KindHello, hello))})
	requireCode(t, err, vm.MachineDied, "speaks protocol 1, this program 4")
	_, err = Resume(t.Context(), readOnly{bytes.NewReader(framed(KindHello, hello))})
	requireCode(t, err, vm.MachineDied, "speaks protocol 1, this program 4")
}

// TestReadyAnswersItsInit gives back another nonce than INIT's, as a guest would
// whose answer to somebody else was kept in a snapshot.
func TestReadyAnswersItsInit(t *testing.T) {
	for nonce, want := range map[string]string{"": "", "another": "READY answers another INIT"} {
		s := guestSays(t, func(c *Conn) {
			_, payload, _ := c.Read()
			var in Init
			_ = json.Unmarshal(payload, &in)
			_ = c.WriteJSON(KindReady, Ready{Nonce: cmp.Or(nonce, in.Nonce), BootID: "b-1"})
		})
		err := s.Init(t.Context(), vm.Spec{RunID: "run-1"})
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, "b-1", s.BootID())
		} else {
			requireCode(t, err, vm.MachineDied, want)
		}
	}
}

func requireCode(t *testing.T, err error, code vm.FailureCode, part string) {
	t.Helper()
	var f *vm.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, code, f.Code)
	require.Contains(t, f.Message, part)
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", vm.MaxLine)
	for _, c := range []struct {
		name   string
		writes []string
		want   []string
	}{
		{"nothing", nil, nil},
		{"lines in one write", []string{"a\nb\n"}, []string{"a", "b"}},
		{"a line in many writes", []string{"a", "b", "c\nd"}, []string{"abc", "d"}},
		{"empty lines", []string{"\n\n"}, []string{"", ""}},
		{"a line of the greatest length", []string{long + "\n"}, []string{long}},
		{"its end in another write", []string{long, "\n"}, []string{long}},
		{"a longer line", []string{long + "y\nz"}, []string{long, "y", "z"}},
		{"no end at all", []string{long, long, "y"}, []string{long, long, "y"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			l := &lineSplitter{sink: func(line []byte, _ int, _ bool) { got = append(got, string(line)) }}
			for _, w := range c.writes {
				l.write([]byte(w))
			}
			l.flush()
			require.Equal(t, c.want, got)
		})
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"out/**", "out/a", true},
		{"out/**", "out/a/b/c", true},
		{"out/**", "out", false},
		{"out/", "out/a/b", true},
		{"./out/*.txt", "out/a.txt", true},
		{"*.txt", "a.txt", true},
		{"*.txt", "dir/a.txt", false},
		{"**/*.txt", "a.txt", true},
		{"**/*.txt", "x/y/a.txt", true},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"a/**/b", "a/x/y/c", false},
		{"a/**/b/**/c", "a/b/x/b/y/c", true},
		{"a/**/b/*/c", "a/b/x/b/y/c", true},
		{"**", "a/b", true},
		{"a?[0-9]", "ab7", true},
		{"a?[0-9]", "ab", false},
		{"a", "a/b", false},
	} {
		globs, err := ParseGlobs([]string{c.pattern})
		require.NoError(t, err)
		require.Equal(t, c.want, globs.Match(c.name), "%s against %s", c.name, c.pattern)
	}
	require.True(t, Globs(nil).Match("anything/at/all"))
	for _, bad := range []string{"", "/", "/abs", "../x", "a//b", "a/./b", "a[", "a/../b"} {
		_, err := ParseGlobs([]string{bad})
		require.Error(t, err, bad)
	}
}

// TestGlobsAgree compares the matcher with one that tries everything.
func TestGlobsAgree(t *testing.T) {
	segment := rapid.SampledFrom([]string{"a", "b", "*", "**", "?"})
	part := rapid.SampledFrom([]string{"a", "b", "cc"})
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SliceOfN(segment, 1, 6).Draw(t, "pattern")
		name := rapid.SliceOfN(part, 1, 6).Draw(t, "name")
		require.Equal(t, matchSlowly(pattern, name), matchSegments(pattern, name))
	})
}

func matchSlowly(pattern, name []string) bool {
	switch {
	case len(pattern) == 0:
		return len(name) == 0
	case pattern[0] == "**" && len(pattern) == 1:
		return len(name) > 0
	case pattern[0] == "**":
		for i := range len(name) + 1 {
			if matchSlowly(pattern[1:], name[i:]) {
				return true
			}
		}
		return false
	case len(name) == 0 || !matchSegment(pattern[0], name[0]):
		return false
	}
	return matchSlowly(pattern[1:], name[1:])
}
