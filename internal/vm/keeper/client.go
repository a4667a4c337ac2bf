package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"
)

// Client is the control connection to one keeper. It is safe for concurrent use.
type Client struct {
	conn    *net.UnixConn
	answers chan Event
	done    chan struct{} // closed when the machine has ended, or the connection has

	asking sync.Mutex // held from a request to its answer
	silent bool       // no answer came in time; set before answers is closed

	mu    sync.Mutex
	ended *Ended
}

// NewClient speaks to a keeper on a control connection.
func NewClient(conn *net.UnixConn) *Client {
	c := &Client{conn: conn, answers: make(chan Event, 1), done: make(chan struct{})}
	go c.listen()
	return c
}

// Dial connects to the keeper of a run's directory, which must be the process
// pid, and speak the same protocol. The keeper lets go of the program before.
func Dial(dir string, pid int) (*Client, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	conn, err := net.DialUnix("unixpacket", nil, address(d))
	if err != nil {
		return nil, fmt.Errorf("call the keeper: %w", err)
	}
	if who, _, err := Peer(conn); err != nil || who != pid {
		conn.Close()
		return nil, errors.Join(fmt.Errorf("call the keeper: process %d answers in place of %d", who, pid), err)
	}
	c := NewClient(conn)
	if _, err := c.State(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) listen() {
	defer close(c.answers)
	var once sync.Once
	over := func() { once.Do(func() { close(c.done) }) }
	defer over()
	for {
		var e Event
		if _, err := Receive(c.conn, &e); err != nil {
			c.silent = errors.Is(err, os.ErrDeadlineExceeded)
			return
		}
		if e.Ended == nil {
			c.answers <- e
			continue
		}
		c.mu.Lock()
		c.ended = e.Ended
		c.mu.Unlock()
		over()
	}
}

// ErrGone says that a keeper is there no more.
var ErrGone = errors.New("the machine's keeper is gone")

// errSilent says that a keeper is frozen, or as good as that.
var errSilent = fmt.Errorf("the machine's keeper did not answer within %s", patience)

// patience is how long a keeper may take to answer. One that takes longer is of no
// use, and its machine has ended for this program.
const patience = 5 * time.Second

// ask sends a request and returns its answer.
func (c *Client) ask(r Request, files ...*os.File) (Event, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	if c.conn.SetDeadline(time.Now().Add(patience)) != nil || Send(c.conn, r, files...) != nil {
		return Event{}, ErrGone
	}
	e, ok := <-c.answers
	switch {
	case !ok && c.silent:
		return Event{}, errSilent
	case !ok || c.conn.SetDeadline(time.Time{}) != nil:
		return Event{}, ErrGone
	}
	return e, nil
}

// Start has the machine's process started. A program that is not there is
// fs.ErrNotExist.
func (c *Client) Start(s Start, stream *os.File, files []*os.File) (Started, error) {
	e, err := c.ask(Request{Start: &s}, append([]*os.File{stream}, files...)...)
	switch {
	case err != nil:
		return Started{}, err
	case e.Failed != nil && e.Failed.Missing:
		return Started{}, fmt.Errorf("%s: %w", e.Failed.Message, fs.ErrNotExist)
	case e.Failed != nil:
		return Started{}, errors.New(e.Failed.Message)
	case e.Started == nil:
		return Started{}, errors.New("the machine's keeper did not say what it started")
	}
	return *e.Started, nil
}

// Keep has the machine outlive this program from now on.
func (c *Client) Keep() error {
	e, err := c.ask(Request{Keep: true})
	if err == nil && !e.Kept {
		err = errors.New("the machine's keeper did not keep it")
	}
	return err
}

// Attach gives the keeper another stream to carry the guest's frames on.
func (c *Client) Attach(stream *os.File) (State, error) {
	return c.state(Request{Attach: true}, stream)
}

// State is where the guest is.
func (c *Client) State() (State, error) { return c.state(Request{State: true}) }

func (c *Client) state(r Request, files ...*os.File) (State, error) {
	e, err := c.ask(r, files...)
	switch {
	case err != nil:
		return State{}, err
	case e.State == nil:
		return State{}, errors.New("the machine's keeper did not say where the guest is")
	case e.State.Proto != Proto:
		return State{}, fmt.Errorf("the machine's keeper speaks protocol %d, this program %d", e.State.Proto, Proto)
	}
	return *e.State, nil
}

// Words are what the machine's process said last, as far as the keeper can say.
func (c *Client) Words() Words {
	if e := c.Ended(); e != nil {
		return e.Words
	}
	e, err := c.ask(Request{Words: true})
	if err != nil || e.Words == nil {
		return Words{}
	}
	return *e.Words
}

// Done is closed when the machine has ended, or its keeper has gone.
func (c *Client) Done() <-chan struct{} { return c.done }

// Ended is how the machine ended; nil: it has not, or nobody knows.
func (c *Client) Ended() *Ended {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Close lets go of the machine. It goes on if it is kept, and ends otherwise.
func (c *Client) Close() error { return c.conn.Close() }
