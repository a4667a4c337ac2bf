package serve_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tidewait/internal/vm"
	"tidewait/internal/vm/guest"
	"tidewait/internal/vm/guest/serve"
)

// serveIn starts an agent for a workspace and returns the host's end, after INIT.
func serveIn(t *testing.T, o serve.Options) *guest.Session {
	t.Helper()
	s := serveNew(t, o)
	require.NoError(t, s.Init(t.Context(), vm.Spec{RunID: "run-7"}))
	return s
}

// serveNew starts an agent and returns the host's end, before INIT.
func serveNew(t *testing.T, o serve.Options) *guest.Session {
	t.Helper()
	ours, theirs := connection(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = serve.Serve(theirs, o) // how it ends is not what is tested
		theirs.Close()             // as the end of the agent does
	}()
	s, err := guest.Open(t.Context(), ours)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(); <-served })
	return s
}

func connection(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		ends[i], err = net.FileConn(f)
		require.NoError(t, errors.Join(err, f.Close()))
	}
	return ends[0], ends[1]
}

func entry(name string, kind byte, mode int64, content string) tar.Header {
	h := tar.Header{Name: name, Typeflag: kind, Mode: mode}
	if kind == tar.TypeReg {
		h.Size = int64(len(content))
	} else {
		h.Linkname = content
	}
	return h
}

func archive(t *testing.T, headers []tar.Header, contents []string) *bytes.Buffer {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for i, h := range headers {
		require.NoError(t, tw.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := io.WriteString(tw, contents[i])
			require.NoError(t, err)
		}
	}
	require.NoError(t, tw.Close())
	return &buf
}

func TestHello(t *testing.T) {
	s := serveIn(t, serve.Options{Workspace: t.TempDir()})
	kernel, err := exec.Command("uname", "-r").Output()
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(kernel)), s.Hello().Kernel)
	require.Equal(t, 4, s.Hello().Proto)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(boot)), s.BootID())
}

func TestInit(t *testing.T) {
	got := make(chan guest.Init, 1)
	workspace := filepath.Join(t.TempDir(), "later")
	s := serveNew(t, serve.Options{Workspace: workspace, Init: func(in guest.Init) error { got <- in; return os.Mkdir(workspace, 0o755) }})
	require.Empty(t, s.BootID(), "a guest must not be asked before it has random numbers of its own")
	before := time.Now()
	network := vm.Network{
		Name: "author", MAC: "02:00:0a:54:57:01", MTU: 1500, Address: netip.MustParsePrefix("10.84.87.1/24"),
		Hosts: []vm.HostName{{Address: netip.MustParseAddr("10.84.87.1"), Names: []string{"author"}}},
	}
	require.NoError(t, s.Init(t.Context(), vm.Spec{RunID: "run-7", NIC: &vm.NIC{Network: network}}))
	in := <-got
	require.Equal(t, "run-7", in.RunID)
	require.Equal(t, &network, in.Network)
	require.Len(t, in.Entropy, 64)
	require.WithinRange(t, in.WallTime, before.Add(-time.Second), time.Now())
	_, err := s.Put(t.Context(), archive(t, nil, nil))
	require.NoError(t, err)
}

// TestWake wakes an agent that said HELLO to somebody else.
func TestWake(t *testing.T) {
	ours, theirs := connection(t)
	served := make(chan error, 1)
	go func() { served <- serve.Serve(theirs, serve.Options{Workspace: t.TempDir()}) }()
	first, err := guest.Open(t.Context(), ours)
	require.NoError(t, err)
	second, err := guest.Resume(t.Context(), ours)
	require.NoError(t, err)
	require.Equal(t, first.Hello(), second.Hello())
	require.NoError(t, second.Init(t.Context(), vm.Spec{RunID: "run-7"}))
	_, err = second.Put(t.Context(), archive(t, nil, nil))
	require.NoError(t, err)
	require.NoError(t, second.Bye())
	require.NoError(t, <-served)
}

func TestInitFails(t *testing.T) {
	s := serveNew(t, serve.Options{Workspace: t.TempDir(), Init: func(guest.Init) error { return errors.New("the disk is not there") }})
	requireFailure(t, s.Init(t.Context(), vm.Spec{RunID: "run-7"}), vm.BootFailed, "the disk is not there")

	s = serveNew(t, serve.Options{Workspace: "/nowhere/at/all"})
	requireFailure(t, s.Init(t.Context(), vm.Spec{RunID: "run-7"}), vm.BootFailed, "open the workspace")
}

// TestInitComesFirstAndOnce lets the host forget INIT, and say it twice.
func TestInitComesFirstAndOnce(t *testing.T) {
	s := serveNew(t, serve.Options{Workspace: t.TempDir()})
	_, err := s.Get(t.Context(), nil, vm.Limits{Files: 1, Bytes: 1}, io.Discard)
	requireFailure(t, err, vm.MachineDied, "lost while collecting results")

	s = serveIn(t, serve.Options{Workspace: t.TempDir()})
	requireFailure(t, s.Init(t.Context(), vm.Spec{RunID: "run-8"}), vm.MachineDied, "lost while greeting the guest agent")
}

// TestHostileInput puts streams in that must not be unpacked; the conversation
// goes on after each.
func TestHostileInput(t *testing.T) {
	outside := t.TempDir()
	for _, c := range []struct {
		name    string
		headers []tar.Header
		part    string
	}{
		{"a parent", []tar.Header{entry("../a", tar.TypeReg, 0o644, "x")}, "not a clean path"},
		{"an absolute path", []tar.Header{entry("/tmp/a", tar.TypeReg, 0o644, "x")}, "not a clean path"},
		{"a git hook", []tar.Header{entry(".git/hooks/a", tar.TypeReg, 0o644, "x")}, "lies in a .git directory"},
		{"through a link", []tar.Header{
			entry("way", tar.TypeSymlink, 0o777, outside),
			entry("way/a", tar.TypeReg, 0o644, "x"),
		}, "path escapes from parent"},
		{"a hard link", []tar.Header{entry("a", tar.TypeLink, 0o644, "b")}, "neither a regular file"},
		{"a device", []tar.Header{entry("a", tar.TypeChar, 0o644, "")}, "neither a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serveIn(t, serve.Options{Workspace: t.TempDir()})
			_, err := s.Put(t.Context(), archive(t, c.headers, []string{"x", "x"}))
			requireFailure(t, err, vm.InjectFailed, c.part)
			left, err := os.ReadDir(outside)
			require.NoError(t, err)
			require.Empty(t, left)
			exit, err := s.Exec(t.Context(), guest.Exec{Argv: []string{"true"}}, time.Second, nil)
			require.NoError(t, err)
			require.Equal(t, vm.Exit{}, exit)
		})
	}
	t.Run("rubbish", func(t *testing.T) {
		s := serveIn(t, serve.Options{Workspace: t.TempDir()})
		_, err := s.Put(t.Context(), strings.NewReader(strings.Repeat("rubbish ", 200000)))
		requireFailure(t, err, vm.InjectFailed, "invalid tar header")
	})
}

func TestModesAndTimes(t *testing.T) {
	dir := t.TempDir()
	s := serveIn(t, serve.Options{Workspace: dir})
	h := entry("a/b", tar.TypeReg, 0o6751, "x")
	h.ModTime = time.Unix(1_600_000_000, 0)
	manifest, err := s.Put(t.Context(), archive(t, []tar.Header{h}, []string{"x"}))
	require.NoError(t, err)
	require.Equal(t, 1, manifest.Files)
	info, err := os.Stat(filepath.Join(dir, "a/b"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o751), info.Mode())
	require.Equal(t, int64(1_600_000_000), info.ModTime().Unix())
}

// TestKindsOfChanges replaces what was put in by something of another kind.
func TestKindsOfChanges(t *testing.T) {
	dir := t.TempDir()
	s := serveIn(t, serve.Options{Workspace: dir})
	_, err := s.Put(t.Context(), archive(t, []tar.Header{
		entry("file-to-dir", tar.TypeReg, 0o644, "x"),
		entry("file-to-link", tar.TypeReg, 0o644, "x"),
		entry("dir/file", tar.TypeReg, 0o644, "x"),
		entry("link", tar.TypeSymlink, 0o777, "file-to-dir"),
		entry("same-size", tar.TypeReg, 0o644, "x"),
		entry("empty/", tar.TypeDir, 0o755, ""),
	}, []string{"x", "x", "x", "", "x", ""}))
	require.NoError(t, err)
	script := `rm file-to-dir file-to-link dir/file && mkdir file-to-dir && echo >file-to-dir/new &&
		ln -s /etc/passwd file-to-link && ln -sfn elsewhere link && printf y >same-size && mkfifo pipe`
	exit, err := s.Exec(t.Context(), guest.Exec{Argv: []string{"sh", "-c", script}}, time.Second, nil)
	require.NoError(t, err)
	require.Equal(t, vm.Exit{}, exit)

	var buf bytes.Buffer
	result, err := s.Get(t.Context(), nil, vm.Limits{Files: 10, Bytes: 100}, &buf)
	require.NoError(t, err)
	var names []string
	for tr := tar.NewReader(&buf); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		names = append(names, h.Name+" "+h.Linkname)
	}
	require.Equal(t, []string{"file-to-dir/new ", "file-to-link /etc/passwd", "link elsewhere", "same-size "}, names)
	require.Equal(t, []string{"dir/file", "file-to-dir"}, result.Deleted)
	require.Equal(t, 4, result.Files)
	require.Equal(t, int64(2), result.Bytes)
}

// TestQuickChanges changes a file as soon as it was put in, to the same size
// and with the same modification time.
func TestQuickChanges(t *testing.T) {
	for range 100 {
		dir := t.TempDir()
		s := serveIn(t, serve.Options{Workspace: dir})
		_, err := s.Put(t.Context(), archive(t, []tar.Header{entry("a", tar.TypeReg, 0o644, "x"), entry("b", tar.TypeReg, 0o644, "x")}, []string{"x", "x"}))
		require.NoError(t, err)
		f, err := os.OpenFile(filepath.Join(dir, "a"), os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString("y")
		require.NoError(t, errors.Join(err, f.Close(), os.Chtimes(f.Name(), time.Unix(0, 0), time.Unix(0, 0))))
		result, err := s.Get(t.Context(), nil, vm.Limits{Files: 10, Bytes: 100}, io.Discard)
		require.NoError(t, err)
		require.Equal(t, 1, result.Files)
	}
}

func TestManyDeletions(t *testing.T) {
	dir := t.TempDir()
	s := serveIn(t, serve.Options{Workspace: dir})
	var headers []tar.Header
	var contents []string
	long := strings.Repeat("x", 200)
	for i := range 6000 {
		headers = append(headers, entry("d/"+long+string(rune('a'+i%26))+strings.Repeat("y", i/26%40)+strings.Repeat("z", i/1040), tar.TypeReg, 0o644, ""))
		contents = append(contents, "")
	}
	_, err := s.Put(t.Context(), archive(t, headers, contents))
	require.NoError(t, err)
	_, err = s.Exec(t.Context(), guest.Exec{Argv: []string{"rm", "-r", "d"}}, time.Second, nil)
	require.NoError(t, err)
	result, err := s.Get(t.Context(), nil, vm.Limits{}, io.Discard)
	require.NoError(t, err)
	require.Len(t, result.Deleted, 6000)
}

func TestSignal(t *testing.T) {
	s := serveIn(t, serve.Options{Workspace: t.TempDir()})
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	var lines []string
	_, err := s.Exec(ctx, guest.Exec{Argv: []string{"sh", "-c", `trap 'echo got TERM; exit 7' TERM; echo ready; while :; do sleep 0.01; done`}}, 10*time.Second,
		func(stream string, line []byte) {
			if stream == "stdout" { // the shell may speak of its own child on the other
				lines = append(lines, string(line))
			}
			cancel(over)
		})
	require.ErrorIs(t, err, over)
	require.Equal(t, []string{"ready", "got TERM"}, lines)
}

func TestMissingInterpreter(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script"), []byte("#!/no/such/interpreter\n"), 0o755))
	s := serveIn(t, serve.Options{Workspace: dir})
	_, err := s.Exec(t.Context(), guest.Exec{Argv: []string{"./script"}}, time.Second, nil)
	requireFailure(t, err, vm.CommandNotFound, `"./script" cannot run: the interpreter or loader it names does not exist`)
}

func TestPathOfTheCommand(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bin/mine"), []byte("#!/bin/sh\necho \"$0\"\n"), 0o755))
	s := serveIn(t, serve.Options{Workspace: dir})
	var lines []string
	_, err := s.Exec(t.Context(), guest.Exec{Argv: []string{"mine"}, Env: map[string]string{"PATH": "bin:/bin:/usr/bin"}}, time.Second,
		func(_ string, line []byte) { lines = append(lines, string(line)) })
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "bin/mine")}, lines)
}

// TestHostGoes ends the connection while a command runs: the command ends too.
func TestHostGoes(t *testing.T) {
	ours, theirs := connection(t)
	served := make(chan error, 1)
	go func() { served <- serve.Serve(theirs, serve.Options{Workspace: t.TempDir()}) }()
	s, err := guest.Open(t.Context(), ours)
	require.NoError(t, err)
	require.NoError(t, s.Init(t.Context(), vm.Spec{RunID: "run-7"}))
	_, err = s.Exec(t.Context(), guest.Exec{Argv: []string{"sh", "-c", "echo ready; sleep 3600"}}, time.Second,
		func(string, []byte) { s.Close() })
	requireFailure(t, err, vm.MachineDied, "lost while running the command")
	require.Error(t, <-served)
}

// FuzzHost lets a host say anything at all; commands are left out.
func FuzzHost(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, byte(guest.KindPut), 'x', 0, 0, 0, 1, byte(guest.KindPut)})
	f.Add([]byte{0, 0, 0, 3, byte(guest.KindGet), '{', '}'})
	f.Add([]byte{0, 0, 0, 1, byte(guest.KindBye)})
	f.Fuzz(func(t *testing.T, said []byte) {
		if bytes.Contains(said, []byte{byte(guest.KindExec)}) {
			return
		}
		begun := append([]byte{0, 0, 0, 3, byte(guest.KindInit), '{', '}'}, said...)
		_ = serve.Serve(talk{bytes.NewReader(begun)}, serve.Options{Workspace: t.TempDir()})
		_ = serve.Serve(talk{bytes.NewReader(said)}, serve.Options{Workspace: t.TempDir()})
	})
}

type talk struct{ io.Reader }

func (talk) Write(p []byte) (int, error) { return len(p), nil }
func (talk) Close() error                { return nil }

func requireFailure(t *testing.T, err error, code vm.FailureCode, part string) {
	t.Helper()
	var f *vm.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, code, f.Code, f.Message)
	require.Contains(t, f.Message, part)
}

// TestSignalWithoutName ends a command by a signal that has no name: that is no
// success.
func TestSignalWithoutName(t *testing.T) {
	s := serveIn(t, serve.Options{Workspace: t.TempDir()})
	exit, err := s.Exec(t.Context(), guest.Exec{Argv: []string{"sh", "-c", "kill -40 $$"}}, time.Second, nil)
	require.NoError(t, err)
	require.Equal(t, vm.Exit{Signal: "SIG40"}, exit)
}
