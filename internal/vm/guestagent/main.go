// Command tidewait-guest is the agent inside a machine. As the first process
// of a virtual machine it takes no arguments; with the argument "process" it
// sets up the namespaces it was started in.
package main

import (
	"fmt"
	"os"

	"tidewait/internal/vm/process/shim"
)

func main() {
	switch {
	case os.Getpid() != 1:
		fmt.Fprintln(os.Stderr, "tidewait-guest is started by a tidewait worker as the first process of a machine")
		os.Exit(2)
	case len(os.Args) == 3 && os.Args[1] == shim.Argument:
		runProcess(os.Args[2])
	default:
		runMachine()
	}
}
