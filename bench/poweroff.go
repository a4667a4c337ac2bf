package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// poweringOff is an initramfs with one file: an init for x86-64 whose first
// instructions ask the kernel to reboot, which ends a QEMU that may not.
func poweringOff() []byte {
	var archive bytes.Buffer
	cpioFile(&archive, "init", 0o100755, rebootProgram())
	cpioFile(&archive, "TRAILER!!!", 0, nil)
	return archive.Bytes()
}

// cpioFile writes one entry in the "new ASCII" form of cpio.
func cpioFile(w *bytes.Buffer, name string, mode int, data []byte) {
	pad := func() { w.Write(make([]byte, -w.Len()&3)) }
	fmt.Fprintf(w, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	pad()
	w.Write(data)
	pad()
}

// rebootProgram is a static ELF program of five instructions.
func rebootProgram() []byte {
	const (
		base    = 0x400000
		headers = 64 + 56
	)
	code := []byte{
		0xb8, 0xa9, 0x00, 0x00, 0x00, // mov eax, 169: reboot
		0xbf, 0xad, 0xde, 0xe1, 0xfe, // mov edi, LINUX_REBOOT_MAGIC1
		0xbe, 0x69, 0x19, 0x12, 0x28, // mov esi, LINUX_REBOOT_MAGIC2
		0xba, 0x67, 0x45, 0x23, 0x01, // mov edx, LINUX_REBOOT_CMD_RESTART
		0x0f, 0x05, // syscall
	}
	size := uint64(headers + len(code))
	var elf bytes.Buffer
	for _, field := range []any{
		[]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
		uint16(2), uint16(62), uint32(1), // executable, x86-64
		uint64(base + headers), uint64(64), uint64(0), // entry, program headers, no sections
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), // load, readable and executable
		uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
		code,
	} {
		_ = binary.Write(&elf, binary.LittleEndian, field) // a buffer takes everything
	}
	return elf.Bytes()
}
