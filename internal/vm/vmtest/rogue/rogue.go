// Package rogue is the guest's end of the protocol as a guest would speak it that
// misbehaves from INIT on. Tests build it into an agent; no agent of the product has
// it. How it misbehaves is the name of its run.
package rogue

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"tidewait/internal/vm/guest"
)

// Kinds of misbehaviour: what the guest does instead of answering the frame that
// each is listed under.
const (
	NeverReady = "never-ready" // INIT

	NeverReads    = "never-reads" // PUT
	EarlyAnswer   = "early-answer"
	AnotherDigest = "another-digest"

	FloodsLog     = "floods-log" // EXEC
	FloodsLines   = "floods-lines"
	EndlessLine   = "endless-line"
	FloodsBeats   = "floods-beats"
	Silent        = "silent"
	HangsMidFrame = "hangs-mid-frame"
	DiesMidFrame  = "dies-mid-frame"
	Dies          = "dies"
	GiantFrame    = "giant-frame"
	ZeroFrame     = "zero-frame"
	Rubbish       = "rubbish"
	OutOfOrder    = "out-of-order"
	UnknownFrame  = "unknown-frame"
	NoStream      = "log-without-stream"
	GiantExit     = "giant-exit-code"
	OddSignal     = "odd-signal"
	OddFailure    = "odd-failure"
	ExitsTwice    = "exits-twice"

	LiesAboutSize   = "lies-about-size" // GET
	LiesAboutDigest = "lies-about-digest"
	EndlessTar      = "endless-tar"
	EndlessPadding  = "endless-padding"
	DeletesOutside  = "deletes-outside"
	DeletesTooMuch  = "deletes-too-much"
	SlowLoris       = "slow-loris"
	HangsMidTar     = "hangs-mid-tar"
	DiesMidTar      = "dies-mid-tar"
)

var all = []string{
	NeverReady, NeverReads, EarlyAnswer, AnotherDigest,
	FloodsLog, FloodsLines, EndlessLine, FloodsBeats, Silent, HangsMidFrame, DiesMidFrame, Dies, GiantFrame, ZeroFrame, Rubbish,
	OutOfOrder, UnknownFrame, NoStream, GiantExit, OddSignal, OddFailure, ExitsTwice,
	LiesAboutSize, LiesAboutDigest, EndlessTar, EndlessPadding, DeletesOutside, DeletesTooMuch, SlowLoris, HangsMidTar, DiesMidTar,
}

// Knows reports whether a run is one that misbehaves.
func Knows(run string) bool { return slices.Contains(all, run) }

// Serve answers INIT, and what follows it, as the run misbehaves, until the host has
// had enough. stream is that under conn.
func Serve(conn *guest.Conn, stream io.ReadWriteCloser, in guest.Init) error {
	r := &rogue{conn: conn, stream: stream, how: in.RunID}
	if r.how == NeverReady {
		return r.hang()
	}
	err := conn.WriteJSON(guest.KindReady, guest.Ready{Nonce: in.Nonce, BootID: "rogue"})
	for err == nil {
		var kind guest.Kind
		var payload []byte
		if kind, payload, err = conn.Read(); err != nil {
			return err
		}
		switch kind {
		case guest.KindPut:
			err = r.put(payload)
		case guest.KindExec:
			err = r.exec()
		case guest.KindGet:
			err = r.get()
		}
	}
	return err
}

type rogue struct {
	conn   *guest.Conn
	stream io.ReadWriteCloser
	how    string
}

// hang takes what the host says, and answers nothing.
func (r *rogue) hang() error {
	for {
		if _, _, err := r.conn.Read(); err != nil {
			return err
		}
	}
}

// freeze does not even take what the host says.
func (r *rogue) freeze() error {
	<-time.After(time.Hour)
	return nil
}

func (r *rogue) put(first []byte) error {
	switch r.how {
	case NeverReads:
		return r.freeze()
	case EarlyAnswer:
		if err := r.conn.WriteJSON(guest.KindPutOK, guest.Tally{Files: 1}); err != nil {
			return err
		}
		return r.hang()
	}
	sum := guest.NewSum()
	for chunk := first; len(chunk) > 0; {
		sum.Write(chunk)
		var err error
		if _, chunk, err = r.conn.Read(); err != nil {
			return err
		}
	}
	m := guest.Tally{Sum: guest.SumText(sum)}
	if r.how == AnotherDigest {
		m.Sum = strings.Repeat("0", 16)
	}
	return r.conn.WriteJSON(guest.KindPutOK, m)
}

func (r *rogue) exec() error {
	switch r.how {
	case FloodsLog:
		return r.repeat(guest.KindLog, append([]byte{1}, bytes.Repeat([]byte("flood "), (guest.MaxFrame-8)/6)...))
	case FloodsLines:
		return r.repeat(guest.KindLog, append([]byte{2}, bytes.Repeat([]byte{'\n'}, 64<<10)...))
	case EndlessLine:
		return r.repeat(guest.KindLog, append([]byte{1}, make([]byte, 64<<10)...))
	case FloodsBeats:
		return r.repeat(guest.KindBeat, []byte(`{}`))
	case Silent:
		return r.hang()
	case HangsMidFrame:
		return r.raw(frameOf(1000)[:20], r.hang)
	case DiesMidFrame:
		return r.raw(frameOf(1000)[:20], r.die)
	case Dies:
		return r.die()
	case GiantFrame:
		return r.raw([]byte{0xff, 0xff, 0xff, 0xff, byte(guest.KindLog)}, r.hang)
	case ZeroFrame:
		return r.raw([]byte{0, 0, 0, 0, byte(guest.KindLog)}, r.hang)
	case Rubbish:
		return r.raw([]byte("HTTP/1.1 200 OK\r\n\r\n"), r.hang)
	case OutOfOrder:
		return r.say(guest.KindTarEnd, `{}`)
	case UnknownFrame:
		return r.say(200, `{}`)
	case NoStream:
		return r.say(guest.KindLog, "\x07text")
	case GiantExit:
		return r.say(guest.KindExit, `{"code":1099511627776}`)
	case OddSignal:
		return r.say(guest.KindExit, `{"signal":"\u0000"}`)
	case OddFailure:
		return r.say(guest.KindFail, `{"code":"capacity_memory","message":"wait for me"}`)
	case ExitsTwice:
		if err := r.say(guest.KindExit, `{"code":0}`); err != nil {
			return err
		}
	}
	return r.say(guest.KindExit, `{"code":0}`)
}

func (r *rogue) get() error {
	const file = "hello\n"
	archive := tarOf("a", file)
	sum := guest.NewSum()
	sum.Write(archive)
	end := guest.TarEnd{Tally: guest.Tally{Files: 1, Bytes: int64(len(file)), Sum: guest.SumText(sum)}}
	switch r.how {
	case LiesAboutSize:
		end.Bytes = 1 << 40
	case LiesAboutDigest:
		end.Sum = strings.Repeat("0", 16)
	case EndlessTar:
		return r.endless(header("a", 1<<40))
	case EndlessPadding:
		return r.endless(archive)
	case DeletesOutside:
		if err := r.conn.Write(guest.KindTar, archive); err != nil {
			return err
		}
		return r.say(guest.KindDeleted, `["../../etc/passwd"]`)
	case DeletesTooMuch:
		return r.deleteALot(archive)
	case SlowLoris:
		return r.slowly(archive)
	case HangsMidTar:
		return r.raw(frameOf(len(archive))[:100], r.hang)
	case DiesMidTar:
		return r.raw(frameOf(len(archive))[:100], r.die)
	}
	if err := r.conn.Write(guest.KindTar, archive); err != nil {
		return err
	}
	return r.conn.WriteJSON(guest.KindTarEnd, end)
}

// repeat says the same for ever.
func (r *rogue) repeat(kind guest.Kind, payload []byte) error {
	for {
		if err := r.conn.Write(kind, payload); err != nil {
			return err
		}
	}
}

// endless sends a tar stream that begins with some bytes and goes on with zeros.
func (r *rogue) endless(first []byte) error {
	if err := r.conn.Write(guest.KindTar, first); err != nil {
		return err
	}
	return r.repeat(guest.KindTar, make([]byte, guest.ChunkSize))
}

// deleteALot lists names of 4000 bytes, as many as there can be.
func (r *rogue) deleteALot(archive []byte) error {
	if err := r.conn.Write(guest.KindTar, archive); err != nil {
		return err
	}
	name := `"` + strings.Repeat("d/", 2000) + `x"`
	return r.repeat(guest.KindDeleted, []byte("["+strings.Repeat(name+",", 199)+name+"]"))
}

// slowly sends an answer so that something always comes, and never all of it.
func (r *rogue) slowly(archive []byte) error {
	for _, b := range archive {
		if err := r.conn.Write(guest.KindTar, []byte{b}); err != nil {
			return err
		}
		<-time.After(100 * time.Millisecond)
	}
	return r.hang()
}

func (r *rogue) say(kind guest.Kind, payload string) error {
	return r.conn.Write(kind, []byte(payload))
}

// raw sends bytes that are no whole frame.
func (r *rogue) raw(b []byte, then func() error) error {
	if _, err := r.stream.Write(b); err != nil {
		return err
	}
	return then()
}

// die ends the agent, and with it the machine.
func (r *rogue) die() error {
	fmt.Fprintln(os.Stderr, "the rogue agent dies")
	os.Exit(1)
	return nil
}

// frameOf is a whole frame of zeros in a log.
func frameOf(size int) []byte {
	frame := binary.BigEndian.AppendUint32(nil, uint32(size)) //nolint:gosec // a few KiB
	frame = append(frame, byte(guest.KindLog), 1)
	return append(frame, make([]byte, size-2)...)
}
