// Command tool is the only program of an image of a test. It writes what it sees
// of the image, and of the workspace, into the file of the workspace that its
// argument names.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := look(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func look(out string) error {
	marker, err := os.ReadFile("/marker")
	if err != nil {
		return err
	}
	readme, err := os.ReadFile("README")
	if err != nil {
		return err
	}
	_, noShell := os.Stat("/bin/sh")
	text := fmt.Sprintf("marker %s\nworkspace %s\nmode %s\nhome %s\nshell %t\n", marker, strings.TrimSpace(string(readme)), os.Getenv("MODE"), os.Getenv("HOME"), noShell == nil)
	return os.WriteFile(out, []byte(text), 0o644)
}
