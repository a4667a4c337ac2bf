// Command tidewait-guest is the agent inside a machine. As the first process
// of a virtual machine it takes no arguments; with the argument "process" it
// sets up the namespaces it was started in. With the argument "keeper" it is no
// such agent: it is the parent of a machine, on the host.
package main

import (
	"fmt"
	"os"

	"tidewait/internal/vm/keeper"
	"tidewait/internal/vm/keeper/keep"
	"tidewait/internal/vm/process/shim"
)

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == keeper.Argument:
		if err := keep.Main(); err != nil {
			fmt.Fprintln(os.Stderr, "tidewait-guest:", err)
			os.Exit(1)
		}
	case os.Getpid() != 1:
		fmt.Fprintln(os.Stderr, "tidewait-guest is started by a tidewait worker as the first process of a machine")
		os.Exit(2)
	case len(os.Args) == 3 && os.Args[1] == shim.Argument:
		runProcess(os.Args[2])
	default:
		runMachine()
	}
}
