// Command licences prints the modules that Tidewait is built and tested with, each
// with its licence, as Markdown: docs/licences.md. It fails where a module has a
// licence that is not allowed, or none that it knows.
//
//	go run ./build/licences > docs/licences.md
package main

import (
	"fmt"
	"os"
)

func main() {
	modules, err := modulesOf(".")
	if err == nil {
		err = check(modules)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
	fmt.Print(report(modules))
}
