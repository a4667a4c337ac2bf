package devstack

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// A process is a started command.
type process struct {
	pid      int
	done     chan struct{} // closed when the process has ended
	err      error         // how it ended; read after done
	expected atomic.Bool   // its end is wanted
}

// spawn starts a command in a process group of its own, out of the terminal's
// reach, to be sent the signal when this process ends. Linux sends it when the
// starting thread ends, so one thread is kept for as long as the command runs.
func spawn(cmd *exec.Cmd, whenOrphaned syscall.Signal) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = whenOrphaned
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, <-started
}

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// An identity tells a process from a later one with the same pid.
type identity struct {
	PID     int    `json:"pid"`
	Started string `json:"started"` // clock ticks since boot
	Boot    string `json:"boot"`    // which boot
}

// identify returns the identity of a process that runs.
func identify(pid int) (identity, error) {
	stat, err := readStat(pid)
	if err != nil {
		return identity{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return identity{}, err
	}
	return identity{PID: pid, Started: stat.started, Boot: strings.TrimSpace(string(boot))}, nil
}

// runs says whether that very process still runs.
func (id identity) runs() bool {
	now, err := identify(id.PID)
	return err == nil && now == id
}

// stat is the part of /proc/<pid>/stat that matters here.
type stat struct {
	parent  int
	started string
}

// readStat fails for processes that have ended, also those that wait to be
// collected.
func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The second field is the name in parentheses and may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat is cut short", pid)
	}
	if state := fields[0]; state == "Z" || state == "X" {
		return stat{}, os.ErrProcessDone
	}
	parent, err := strconv.Atoi(fields[1])
	return stat{parent: parent, started: fields[19]}, err
}

// childrenOf lists the processes that pid started and that still run.
func childrenOf(pid int) []identity {
	var children []identity
	for _, candidate := range processes() {
		if s, err := readStat(candidate); err != nil || s.parent != pid {
			continue
		}
		if id, err := identify(candidate); err == nil {
			children = append(children, id)
		}
	}
	return children
}

func processes() []int {
	paths, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, path := range paths {
		if pid, err := strconv.Atoi(filepath.Base(path)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
