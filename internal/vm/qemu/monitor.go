package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// monitor speaks QMP, QEMU's protocol for its own control, to one QEMU. It is
// used by one goroutine.
type monitor struct {
	conn *net.UnixConn
	in   *json.Decoder
	seen []event // events that came while something else was waited for
}

type event struct {
	Event string `json:"event"`
	Data  struct {
		Status string `json:"status"`
	} `json:"data"`
}

// message is anything QEMU says.
type message struct {
	event
	Greeting json.RawMessage `json:"QMP"`
	Return   json.RawMessage `json:"return"`
	Error    *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

// openMonitor waits for QEMU's greeting and makes it take commands.
func openMonitor(conn *net.UnixConn) (*monitor, error) {
	m := &monitor{conn: conn, in: json.NewDecoder(conn)}
	hello, err := m.read()
	if err == nil && hello.Greeting == nil {
		err = errors.New("QEMU's monitor did not greet")
	}
	if err != nil {
		return nil, err
	}
	return m, m.do("qmp_capabilities", nil, nil)
}

func (m *monitor) read() (message, error) {
	var said message
	if err := m.in.Decode(&said); err != nil {
		return message{}, fmt.Errorf("listen to QEMU's monitor: %w", err)
	}
	return said, nil
}

// do has QEMU execute a command, with a file for it when that is not nil.
func (m *monitor) do(command string, arguments map[string]any, file *os.File) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := m.conn.WriteMsgUnix(append(line, '\n'), rights, nil); err != nil {
		return fmt.Errorf("tell QEMU to %s: %w", command, err)
	}
	for {
		said, err := m.read()
		switch {
		case err != nil:
			return err
		case said.Error != nil:
			return fmt.Errorf("QEMU refused to %s: %s", command, said.Error.Desc)
		case said.Return != nil:
			return nil
		}
		m.seen = append(m.seen, said.event)
	}
}

// await waits for an event with one of the given states and returns that.
func (m *monitor) await(name string, states ...string) (string, error) {
	for {
		for _, e := range m.seen {
			for _, state := range states {
				if e.Event == name && e.Data.Status == state {
					return state, nil
				}
			}
		}
		said, err := m.read()
		if err != nil {
			return "", err
		}
		m.seen = append(m.seen[:0], said.event)
	}
}
