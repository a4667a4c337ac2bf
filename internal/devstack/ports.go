package devstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Ports are the TCP ports of a stack, all on 127.0.0.1.
type Ports struct {
	Postgres        int `json:"postgres"`
	NATS            int `json:"nats"`
	Temporal        int `json:"temporal"`
	TemporalUI      int `json:"temporal_ui"`
	TemporalMetrics int `json:"temporal_metrics"`
	TemporalHTTP    int `json:"temporal_http"`
	Codec           int `json:"codec"`
}

// Ports are chosen below the range from which Linux takes the ports of outgoing
// connections: a client that keeps trying to reach a service that is down can
// otherwise be given the service's own port.
const (
	lowestPort  = 20000
	highestPort = 32767
)

// claims are the ports that a stack has chosen, and nobody else's stack will
// while this one lives: between its choice and the moment when a service listens
// there, seconds pass in which the port looks free.
type claims []*os.File

// claim reports whether a port was free to take, and takes it.
func (c *claims) claim(port int) bool {
	dir := filepath.Join(os.TempDir(), "tidewait-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return isFree(port)
	}
	_ = os.Chmod(dir, 0o777)                                                                       //nolint:gosec // every user's stacks claim there; only who made it may, and need
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_RDWR|os.O_CREATE, 0o666) //nolint:gosec // the same
	if err != nil {
		return isFree(port) // another user's file: the port itself still tells
	}
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || !isFree(port) {
		file.Close()
		return false
	}
	*c = append(*c, file)
	return true
}

// release gives all ports free; doing it again does nothing.
func (c *claims) release() {
	for _, file := range *c {
		file.Close()
	}
	*c = nil
}

// settlePorts decides every port and writes them down for the next start.
func settlePorts(o Options, claimed *claims) (Ports, error) {
	path := filepath.Join(o.Dir, "ports.json")
	before, err := readPorts(path)
	if err != nil {
		return Ports{}, err
	}
	ports := before
	for _, p := range []struct {
		name  string
		of    Name
		fixed int
		port  *int
	}{
		{"Postgres", Postgres, o.Ports.Postgres, &ports.Postgres},
		{"NATS", NATS, o.Ports.NATS, &ports.NATS},
		{"Temporal", Temporal, o.Ports.Temporal, &ports.Temporal},
		{"Temporal's Web UI", Temporal, o.Ports.TemporalUI, &ports.TemporalUI},
		{"Temporal's metrics", Temporal, o.Ports.TemporalMetrics, &ports.TemporalMetrics},
		{"Temporal's HTTP API", Temporal, o.Ports.TemporalHTTP, &ports.TemporalHTTP},
		{"the codec server", Temporal, o.Ports.Codec, &ports.Codec},
	} {
		if !o.wants(p.of) {
			continue
		}
		last := *p.port
		if *p.port, err = choosePort(p.name, p.fixed, last, claimed); err != nil {
			return Ports{}, err
		}
		if last != 0 && p.fixed == 0 && *p.port != last {
			o.Progress(fmt.Sprintf("Port %d is in use, %s moves to %d", last, p.name, *p.port))
		}
	}
	return ports, writePorts(path, ports)
}

func choosePort(name string, fixed, last int, claimed *claims) (int, error) {
	if fixed != 0 {
		if !claimed.claim(fixed) {
			return 0, portInUse(name, fixed)
		}
		return fixed, nil
	}
	if last != 0 && claimed.claim(last) {
		return last, nil
	}
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if claimed.claim(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("found no free port for %s between %d and %d on 127.0.0.1: end what listens there", name, lowestPort, highestPort)
}

func portInUse(name string, port int) error {
	return fmt.Errorf("port %d, which is to be %s's, is in use on 127.0.0.1: end the program that listens there, or choose another port", port, name)
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func readPorts(path string) (Ports, error) {
	var ports Ports
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ports, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &ports)
	}
	if err != nil {
		return ports, fmt.Errorf("cannot read the stack's ports from %s, remove the file to have them chosen anew: %w", path, err)
	}
	return ports, nil
}

func writePorts(path string, ports Ports) error {
	text, err := json.MarshalIndent(ports, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot write the stack's ports: %w", err)
	}
	return nil
}
