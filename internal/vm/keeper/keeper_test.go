package keeper

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestMessagesCarryFiles(t *testing.T) {
	ours, theirs, err := SocketPair(unix.SOCK_SEQPACKET)
	require.NoError(t, err)
	other, err := Conn(theirs)
	require.NoError(t, err)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()

	require.NoError(t, Send(ours, Request{Attach: true}, w))
	require.NoError(t, Send(ours, Request{Keep: true}))
	require.NoError(t, w.Close())
	var got Request
	files, err := Receive(other, &got)
	require.NoError(t, err)
	require.Equal(t, Request{Attach: true}, got)
	require.Len(t, files, 1)
	_, err = files[0].WriteString("through")
	require.NoError(t, err)
	CloseAll(files)
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "through", string(b))

	got = Request{}
	files, err = Receive(other, &got)
	require.NoError(t, err)
	require.Equal(t, Request{Keep: true}, got)
	require.Empty(t, files)

	require.ErrorContains(t, Send(ours, Request{Start: &Start{Path: strings.Repeat("x", maxMessage)}}), "larger than")
	require.NoError(t, ours.Close())
	_, err = Receive(other, &got)
	require.ErrorIs(t, err, io.EOF)
}

func TestDialReachesALongDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	before, err := Listen(dir)
	require.NoError(t, err)
	require.NoError(t, before.Close())
	l, err := Listen(dir)
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			var r Request
			_, _ = Receive(c, &r)
			_ = Send(c, Event{State: &State{Proto: Proto, Executed: true}})
		}
	}()
	c, err := Dial(dir, os.Getpid())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	<-c.Done()

	_, err = Dial(dir, os.Getppid())
	require.ErrorContains(t, err, "answers in place of")
}

func TestDialRefusesAnotherProtocol(t *testing.T) {
	dir := t.TempDir()
	l, err := Listen(dir)
	require.NoError(t, err)
	defer l.Close()
	go func() {
		c, err := l.AcceptUnix()
		if err == nil {
			_ = Send(c, Event{State: &State{Proto: Proto + 1}})
		}
	}()
	_, err = Dial(dir, os.Getpid())
	require.EqualError(t, err, "the machine's keeper speaks protocol 2, this program 1")
}

func TestLease(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lease")
	until, err := ReadLease(file)
	require.NoError(t, err)
	require.Zero(t, until, "no lease is one that is over")

	require.NoError(t, WriteLease(file, 5*time.Second+time.Nanosecond))
	until, err = ReadLease(file)
	require.NoError(t, err)
	require.Equal(t, 5*time.Second+time.Nanosecond, until)

	for text, want := range map[string]string{
		"":               `read the lease: "" is no time`,
		"5":              `read the lease: "5" is no time`,
		"-1 boot\n":      "read the lease: \"-1 boot\\n\" is no time",
		"x boot\n":       "read the lease: \"x boot\\n\" is no time",
		"1e9 some-boot ": `read the lease: "1e9 some-boot " is no time`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := ReadLease(file)
		require.EqualError(t, err, want)
	}
	until, err = parseLease("77 another-boot\n", "this-boot")
	require.NoError(t, err)
	require.Zero(t, until, "a lease ends with the host's boot")
}

// TestLeaseIsReadAsWritten: what is written is read, whatever it is.
func TestLeaseIsReadAsWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lease")
	rapid.Check(t, func(t *rapid.T) {
		want := time.Duration(rapid.Int64Min(0).Draw(t, "until"))
		if err := WriteLease(file, want); err != nil {
			t.Fatal(err)
		}
		got, err := ReadLease(file)
		if err != nil || got != want {
			t.Fatalf("%d was written, %d read: %v", want, got, err)
		}
	})
}
