package serve

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stamp tells cheaply that a file is the same as before: the kernel sets the
// change time whenever content changes, and nobody else does. The zero stamp
// tells nothing.
type stamp struct {
	inode  uint64
	change syscall.Timespec
}

func (s stamp) same(before stamp) bool { return s == before && s != stamp{} }

// changeClock takes stamps of files. It is used by one goroutine.
type changeClock struct {
	trusted bool
	latest  int64 // nanoseconds
}

// newChangeClock trusts the file systems that keep change times also for writes
// through mapped memory.
func newChangeClock(root *os.Root) *changeClock {
	var c changeClock
	if dir, err := root.Open("."); err == nil {
		defer dir.Close()
		var s unix.Statfs_t
		if unix.Fstatfs(int(dir.Fd()), &s) == nil {
			c.trusted = s.Type == unix.EXT4_SUPER_MAGIC || s.Type == unix.XFS_SUPER_MAGIC
		}
	}
	return &c
}

// stampOf is the stamp of a file, and zero where change times cannot be trusted:
// one of whole seconds may be cut off.
func (c *changeClock) stampOf(info fs.FileInfo) stamp {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !c.trusted || !ok || st.Ctim.Nsec == 0 {
		return stamp{}
	}
	c.latest = max(c.latest, st.Ctim.Nano())
	return stamp{inode: st.Ino, change: st.Ctim}
}

// tick is longer than the kernel's clock for change times takes to advance.
const tick = 100 * time.Millisecond

// wait returns when the kernel's clock for change times is past every stamp
// taken: what changes from now on has another one. A clock that does not get
// there was set back, and stamps are not trusted.
func (c *changeClock) wait() {
	if c.latest == 0 {
		return
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(tick); time.Now().Before(deadline); <-look.C {
		var now unix.Timespec
		if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) == nil && now.Nano() > c.latest {
			return
		}
	}
	c.trusted = false
}
