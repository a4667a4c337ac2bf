package local

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawn starts a process that is told to end when this program ends, however it
// ends. The kernel sends that signal when the starting thread ends, so one
// thread starts every process and lives as long as the program.
func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	done := make(chan error)
	spawns <- func() { done <- cmd.Start() }
	return <-done
}

var spawns = func() chan func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
}()
