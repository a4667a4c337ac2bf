package main

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRebootProgramIsOne(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(rebootProgram()))
	require.NoError(t, err)
	require.Equal(t, elf.ET_EXEC, f.Type)
	require.Equal(t, elf.EM_X86_64, f.Machine)
	require.Len(t, f.Progs, 1)
	require.Equal(t, uint64(0x400078), f.Entry)
	require.Equal(t, uint64(142), f.Progs[0].Filesz)
}

func TestInitramfsCanBeUnpacked(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("busybox", "cpio", "-i")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(poweringOff())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	init, err := os.ReadFile(filepath.Join(dir, "init"))
	require.NoError(t, err)
	require.Equal(t, rebootProgram(), init)
}
