package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	startLimit   = 90 * time.Second      // for a service to become ready
	stopGrace    = 10 * time.Second      // between asking a service to end and killing it
	pollInterval = 20 * time.Millisecond // between looks at something that is about to change
)

// stopSignals ask the services to end at once and cleanly.
var stopSignals = map[Name]syscall.Signal{Postgres: syscall.SIGINT, NATS: syscall.SIGTERM, Temporal: syscall.SIGTERM}

// A Service is one process of the stack. It can be stopped, killed, frozen and
// started again, with the same port and data. Its methods may be called by
// several goroutines.
type Service struct {
	name         Name
	port         int
	command      func() *exec.Cmd
	prepare      func(ctx context.Context) error // before every start
	ready        func(ctx context.Context) error // nil once the service takes work
	whenOrphaned syscall.Signal
	logPath      string
	recordPath   string
	ended        func(error)

	changing sync.Mutex // held while the service is started or ended
	running  atomic.Pointer[process]
}

// Address is where the service listens, host:port. It never changes.
func (s *Service) Address() string { return loopback(s.port) }

// LogPath is the file with what the service prints.
func (s *Service) LogPath() string { return s.logPath }

// PID is the process id of the service, or 0 when it does not run.
func (s *Service) PID() int {
	if p := s.running.Load(); p != nil && p.alive() {
		return p.pid
	}
	return 0
}

// Start starts the service and returns when it takes work. A service that runs
// already is left alone.
func (s *Service) Start(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.PID() != 0 {
		return nil
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if !isFree(s.port) {
		return portInUse(string(s.name), s.port)
	}
	return s.start(ctx)
}

func (s *Service) start(ctx context.Context) error {
	log, err := os.OpenFile(s.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("cannot write the log of %s: %w", s.name, err)
	}
	defer log.Close()
	before, err := log.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("cannot write the log of %s: %w", s.name, err)
	}
	cmd := s.command()
	cmd.Stdout, cmd.Stderr = log, log
	p, err := spawn(cmd, s.whenOrphaned)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", s.name, err)
	}
	s.running.Store(p)
	if err := errors.Join(s.record(p.pid), s.awaitReady(ctx, p, before)); err != nil {
		return errors.Join(err, s.kill())
	}
	go s.watch(p)
	return nil
}

// awaitReady probes until the service is ready, ends, or takes too long.
func (s *Service) awaitReady(ctx context.Context, p *process, logged int64) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := s.ready(ctx)
		if err == nil && p.alive() {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended while it was starting (%s): %s; its log is %s", s.name, howEnded(p.err), lastWords(s.logPath, logged), s.logPath)
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready (%w): %s; its log is %s", s.name, ctx.Err(), oneLine(err), s.logPath)
		case <-time.After(pollInterval):
		}
	}
}

func (s *Service) watch(p *process) {
	<-p.done
	if !p.expected.Load() {
		s.ended(fmt.Errorf("%s ended by itself: %s; its log is %s", s.name, howEnded(p.err), s.logPath))
	}
}

// oneLine joins the lines of errors that have several, such as those of drivers.
func oneLine(err error) string { return strings.Join(strings.Fields(fmt.Sprint(err)), " ") }

func howEnded(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// Stop asks the service to end and waits. One that has not ended after ten
// seconds, or when ctx ends, is killed; a frozen one is woken first.
func (s *Service) Stop(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	p := s.running.Load()
	if p == nil || !p.alive() {
		return nil
	}
	p.expected.Store(true)
	if err := askToEnd(s.name, p.pid); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return s.kill()
	}
}

// Kill ends the service as a crash would: no process of it gets to do anything.
func (s *Service) Kill() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.kill()
}

func (s *Service) kill() error {
	p := s.running.Load()
	if p == nil || !p.alive() {
		return nil
	}
	p.expected.Store(true)
	id, err := identify(p.pid)
	if err != nil {
		<-p.done
		return nil
	}
	if err := killTree(id); err != nil {
		return fmt.Errorf("cannot kill %s: %w", s.name, err)
	}
	<-p.done
	return nil
}

// Freeze stops every process of the service in its tracks: connections stay
// open, and nothing answers. Thaw, Stop and Kill end it.
func (s *Service) Freeze() error { return s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen service go on.
func (s *Service) Thaw() error { return s.signal(syscall.SIGCONT) }

func (s *Service) signal(sig syscall.Signal) error {
	pid := s.PID()
	if pid == 0 {
		return fmt.Errorf("%s does not run", s.name)
	}
	return signalTree(pid, sig)
}

// askToEnd also wakes what is frozen, which could not end otherwise.
func askToEnd(name Name, pid int) error {
	return errors.Join(send(pid, stopSignals[name]), signalTree(pid, syscall.SIGCONT))
}

// signalTree signals a process and its children; the process comes first, so
// that one that freezes has no more children afterwards.
func signalTree(pid int, sig syscall.Signal) error {
	if err := send(pid, sig); err != nil {
		return err
	}
	for _, child := range childrenOf(pid) {
		if err := send(child.PID, sig); err != nil {
			return err
		}
	}
	return nil
}

// send sends a signal; a process that has ended meanwhile is no error.
func send(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot send %s to process %d: %w", sig, pid, err)
	}
	return nil
}

// killTree kills a process and its children and waits until they are gone.
func killTree(root identity) error {
	if err := send(root.PID, syscall.SIGSTOP); err != nil {
		return err
	}
	tree := append([]identity{root}, childrenOf(root.PID)...)
	for _, id := range tree {
		if id.runs() {
			if err := send(id.PID, syscall.SIGKILL); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	for _, id := range tree {
		for id.runs() {
			if pause(ctx) != nil {
				return fmt.Errorf("process %d does not end", id.PID)
			}
		}
	}
	return nil
}

func (s *Service) fileName() string { return fileName(s.name) }

func fileName(name Name) string { return strings.ToLower(string(name)) }

func recordPath(dir string, name Name) string {
	return filepath.Join(dir, "run", fileName(name)+".json")
}

// record writes down which process the service is, for a later stack.
func (s *Service) record(pid int) error {
	id, err := identify(pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(id)
	}
	if err == nil {
		err = os.WriteFile(s.recordPath, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot write down the process of %s: %w", s.name, err)
	}
	return nil
}

// clearLeftover ends a service that an earlier stack of this directory left
// behind. A process that only has the same pid is not touched.
func clearLeftover(ctx context.Context, dir string, name Name) error {
	var left identity
	text, err := os.ReadFile(recordPath(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read what an earlier stack left behind: %w", err)
	}
	if json.Unmarshal(text, &left) != nil || left.PID <= 1 || !left.runs() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	if err := askToEnd(name, left.PID); err != nil {
		return err
	}
	for left.runs() {
		if pause(ctx) != nil {
			return killTree(left)
		}
	}
	return nil
}

// pause waits for a moment, or fails because ctx has ended.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pollInterval):
		return nil
	}
}

// keepPreviousLog keeps the log of the last stack beside the new one.
func keepPreviousLog(path string) error {
	if err := os.Rename(path, path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot put the previous log aside: %w", err)
	}
	return nil
}

// lastWords is what a service said last after an offset of its log, or the
// reason it called fatal.
func lastWords(path string, offset int64) string {
	text, err := os.ReadFile(path)
	if err != nil || int64(len(text)) < offset {
		return "it said nothing"
	}
	lines := strings.Split(strings.TrimSpace(string(text[offset:])), "\n")
	for _, line := range lines {
		if strings.Contains(line, "FATAL") {
			return line
		}
	}
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return "it said nothing"
}
