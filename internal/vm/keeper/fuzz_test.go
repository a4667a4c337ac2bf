package keeper_test

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"tidewait/internal/vm/keeper"
)

// FuzzReceive lets whoever has the other end of a control connection say anything.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"state":"signal: killed","lease":true,"words":{"stdout":"a"}}`))
	f.Add([]byte(`{"begin":null,"endedAt":-1}`))
	f.Add([]byte(`[]`))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) == 0 || len(said) > 100<<10 {
			return // the end of the connection; more than a socket takes at once
		}
		ours, theirs, err := keeper.SocketPair(unix.SOCK_SEQPACKET)
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		if _, err := theirs.Write(said); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		var end keeper.Ended
		files, err := keeper.Receive(ours, &end)
		if len(files) > 0 {
			t.Fatalf("%d files came from nowhere", len(files))
		}
		if errors.Is(err, io.EOF) {
			t.Fatalf("%q ended the connection", said)
		}
	})
}
