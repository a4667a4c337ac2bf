package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of processor times in /proc; Linux shows hundredths of
// a second to every program.
const clockTick = 10 * time.Millisecond

// usage is what a process uses.
type usage struct {
	resident, peak float64       // MiB
	processor      time.Duration // user and system, since it started
}

// usageOf reads a process's memory, and the processor time of it and of its
// children, those that ended included.
func usageOf(pid int) (usage, error) {
	var u usage
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	u.resident, u.peak = memoryOf(string(status), "VmRSS"), memoryOf(string(status), "VmHWM")
	u.processor, err = processorTime(pid)
	return u, err
}

// memoryOf reads one line of /proc/PID/status, in MiB.
func memoryOf(status, key string) float64 {
	for text := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(text, key+":"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			if err == nil {
				return kib / 1024
			}
		}
	}
	return 0
}

// processorTime is the processor time of a process and of its children, those
// that ended included.
func processorTime(pid int) (time.Duration, error) {
	total, err := ownProcessorTime(pid)
	if err != nil {
		return 0, err
	}
	for _, child := range childrenOf(pid) {
		// A child that has just ended is counted by its parent.
		if t, err := processorTime(child); err == nil {
			total += t
		}
	}
	return total, nil
}

// ownProcessorTime leaves out the children that run.
func ownProcessorTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	total, err := ticksOf(string(stat))
	if err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return total, nil
}

// ticksOf adds utime, stime, cutime and cstime of /proc/PID/stat. They are the
// 12th to 15th words after the program's name, which may contain anything.
func ticksOf(stat string) (time.Duration, error) {
	words := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(words) < 15 {
		return 0, errors.New("the line in /proc is too short")
	}
	var ticks int64
	for _, word := range words[11:15] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// childrenOf lists the children of every thread of a process.
func childrenOf(pid int) []int {
	var children []int
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	for _, thread := range threads {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		if err != nil {
			continue
		}
		for word := range strings.FieldsSeq(string(list)) {
			if child, err := strconv.Atoi(word); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// descendant returns a process below pid that runs a program of that name, or 0.
func descendant(pid int, program string) int {
	for _, child := range childrenOf(pid) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
		if strings.TrimSpace(string(name)) == program {
			return child
		}
		if found := descendant(child, program); found != 0 {
			return found
		}
	}
	return 0
}
