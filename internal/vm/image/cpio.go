package image

import (
	"fmt"
	"io"
)

// Types of cpio entries, as in the mode of a Unix file.
const (
	typeDir     = 0o040000
	typeChar    = 0o020000
	typeFile    = 0o100000
	typeSymlink = 0o120000
)

// cpioWriter writes the "new ASCII" cpio format, which the kernel unpacks as
// its first root filesystem. The first error sticks.
type cpioWriter struct {
	w     io.Writer
	inode int
	err   error
}

func (c *cpioWriter) dir(name string) { c.entry(name, typeDir|0o755, nil, 0, 0) }
func (c *cpioWriter) file(name string, mode int, data []byte) {
	c.entry(name, typeFile|mode, data, 0, 0)
}

func (c *cpioWriter) symlink(name, target string) {
	c.entry(name, typeSymlink|0o777, []byte(target), 0, 0)
}

func (c *cpioWriter) char(name string, mode, major, minor int) {
	c.entry(name, typeChar|mode, nil, major, minor)
}

// close writes the trailer.
func (c *cpioWriter) close() error {
	c.entry("TRAILER!!!", 0, nil, 0, 0)
	return c.err
}

func (c *cpioWriter) entry(name string, mode int, data []byte, major, minor int) {
	if c.err != nil {
		return
	}
	c.inode++
	head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		c.inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0, name)
	for _, part := range [][]byte{[]byte(head), padding(len(head)), data, padding(len(data))} {
		if _, err := c.w.Write(part); err != nil {
			c.err = err
			return
		}
	}
}

// padding fills n bytes up to a multiple of four.
func padding(n int) []byte { return make([]byte, -n&3) }
