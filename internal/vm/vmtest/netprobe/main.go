// Command netprobe is what tests and benchmarks run inside machines to use, and
// to abuse, the network between them. It is a static program of its own, since
// the tools of a guest do not make frames.
package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const usage = `usage:
  netprobe serve                    echo on port 7, swallow on port 9; says "ready"
  netprobe rtt HOST COUNT           send one byte and wait for its echo; says "begin" and "end"
  netprobe stream HOST BYTES        send bytes and wait until they were swallowed; says "begin" and "end"
  netprobe reach HOST PORT...       connect; says which port was reached, or the error
  netprobe flood HOST SECONDS       send datagrams to port 9 as fast as possible; says how many
  netprobe raw DEVICE COUNT HEX...  send each frame count times; says how many
  netprobe hear DEVICE              print every frame that arrives; says "ready" first`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "netprobe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		return serve()
	case len(args) == 3 && args[0] == "rtt":
		return rtt(args[1], number(args[2]))
	case len(args) == 3 && args[0] == "stream":
		return stream(args[1], number(args[2]))
	case len(args) >= 3 && args[0] == "reach":
		reach(args[1], args[2:])
		return nil
	case len(args) == 3 && args[0] == "flood":
		return flood(args[1], time.Duration(number(args[2]))*time.Second)
	case len(args) >= 4 && args[0] == "raw":
		return raw(args[1], number(args[2]), args[3:])
	case len(args) == 2 && args[0] == "hear":
		return hear(args[1])
	}
	return errors.New(usage)
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

func serve() error {
	echo, err := net.Listen("tcp4", ":7")
	if err != nil {
		return err
	}
	swallow, err := net.Listen("tcp4", ":9")
	if err != nil {
		return err
	}
	fmt.Println("ready")
	failed := make(chan error)
	go func() { failed <- accept(echo, func(c net.Conn) { _, _ = io.Copy(c, c) }) }()
	go func() {
		failed <- accept(swallow, func(c net.Conn) {
			_, _ = io.Copy(io.Discard, c)
			_, _ = c.Write([]byte{1})
		})
	}()
	return <-failed
}

func accept(l net.Listener, handle func(net.Conn)) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			handle(c)
		}()
	}
}

func rtt(host string, count int) error {
	c, err := dial(host, "7")
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 1)
	fmt.Println("begin")
	for range count {
		if _, err := c.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
	}
	fmt.Println("end")
	return nil
}

func stream(host string, size int) error {
	c, err := dial(host, "9")
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 64<<10)
	fmt.Println("begin")
	for ; size > 0; size -= len(b) {
		if _, err := c.Write(b[:min(len(b), size)]); err != nil {
			return err
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, b[:1]); err != nil {
		return err
	}
	fmt.Println("end")
	return nil
}

// patience is how long a host may take to answer.
const patience = 20 * time.Second

// dial tries until the other one listens.
func dial(host, port string) (net.Conn, error) {
	deadline := time.Now().Add(patience)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		c, err := net.DialTimeout("tcp4", net.JoinHostPort(host, port), time.Until(deadline))
		if err == nil || time.Now().After(deadline) {
			return c, err
		}
		<-again.C
	}
}

// reachTime is how long a host may take to answer that is likely not there.
const reachTime = 2 * time.Second

func reach(host string, ports []string) {
	for _, port := range ports {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), reachTime)
		if err != nil {
			fmt.Println(err)
			continue
		}
		c.Close()
		fmt.Println("reached", host, port)
	}
}

func flood(host string, how time.Duration) error {
	c, err := net.Dial("udp4", net.JoinHostPort(host, "9"))
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 1400)
	sent := 0
	for end := time.Now().Add(how); time.Now().Before(end); sent++ {
		_, _ = c.Write(b) // an answer that nobody listens is an error of the next
	}
	fmt.Println(sent)
	return nil
}

// packetSocket sends and hears the frames of a device.
func packetSocket(device string) (int, *unix.SockaddrLinklayer, error) {
	const everything = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, everything)
	if err != nil {
		return 0, nil, fmt.Errorf("open a packet socket: %w", err)
	}
	nic, err := net.InterfaceByName(device)
	if err != nil {
		return 0, nil, err
	}
	address := &unix.SockaddrLinklayer{Ifindex: nic.Index, Protocol: everything}
	return fd, address, unix.Bind(fd, address)
}

func raw(device string, count int, frames []string) error {
	fd, address, err := packetSocket(device)
	if err != nil {
		return err
	}
	sent := 0
	for _, text := range frames {
		frame, err := hex.DecodeString(text)
		if err != nil {
			return err
		}
		for range count {
			switch err := unix.Sendto(fd, frame, 0, address); {
			case err == nil:
				sent++
			case !errors.Is(err, unix.ENOBUFS):
				return err
			}
		}
	}
	fmt.Println(sent)
	return nil
}

func hear(device string) error {
	fd, _, err := packetSocket(device)
	if err != nil {
		return err
	}
	b := make([]byte, 1<<16)
	fmt.Println("ready")
	for {
		n, from, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return err
		}
		if a, ok := from.(*unix.SockaddrLinklayer); ok && a.Pkttype != unix.PACKET_OUTGOING {
			fmt.Println(hex.EncodeToString(b[:n]))
		}
	}
}
