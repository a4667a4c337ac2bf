// Package guest is the protocol between the host and the agent inside a
// machine, and the host's end of it ([Session]). Package serve is the guest's.
//
// Both ends write frames to one byte stream: a length of four bytes (big
// endian), then that many bytes, of which the first is the [Kind]. Control
// frames carry JSON; LOG and the chunks of tar streams carry bytes.
//
//	host                         guest
//	WAKE                         HELLO
//	INIT                         READY
//	PUT ... PUT (empty)          PUT_OK
//	EXEC   SIGNAL                LOG ... BEAT ... EXIT
//	GET                          TAR ... DELETED ... TAR_END
//	BYE
//
// WAKE is for a guest that is restored from a snapshot, which said HELLO before the
// snapshot was made: it says it again. In place of any answer the guest may send FAIL. The host trusts nothing the
// guest sends.
package guest

import (
	"time"

	"tidewait/internal/vm"
)

// Proto is the version of the protocol that HELLO names.
const Proto = 4

// Where the agent of a virtual machine finds its kernel's modules: those that are
// for every machine at once, those of devices that are bound on INIT, and those for
// machines with a network or with the disk of a root directory.
const (
	ModulesDir        = "/modules"
	RunModulesDir     = "/run-modules"
	NetworkModulesDir = "/network-modules"
	RootModulesDir    = "/root-modules"
)

// The serial numbers of the disks of a virtual machine: the one that its
// workspace is on, and the one with the root directory of commands, where the
// agent's own is not theirs.
const (
	ScratchDisk = "scratch"
	RootDisk    = "root"
)

// Kind is what a frame is.
type Kind byte

// The kinds of frames.
const (
	KindHello   Kind = iota + 1 // Hello
	KindInit                    // Init
	KindPut                     // bytes of a tar stream; empty ends it
	KindPutOK                   // Tally
	KindExec                    // Exec
	KindLog                     // one byte, 1 (stdout) or 2 (stderr), then output
	KindBeat                    // Beat
	KindExit                    // vm.Exit
	KindSignal                  // Signal
	KindGet                     // Get
	KindTar                     // bytes of a tar stream
	KindDeleted                 // []string
	KindTarEnd                  // TarEnd
	KindBye                     // nothing
	KindFail                    // Fail
	KindReady                   // Ready
	KindWake                    // nothing
)

var kindNames = [...]string{
	KindHello: "HELLO", KindInit: "INIT", KindPut: "PUT", KindPutOK: "PUT_OK", KindExec: "EXEC",
	KindLog: "LOG", KindBeat: "BEAT", KindExit: "EXIT", KindSignal: "SIGNAL", KindGet: "GET",
	KindTar: "TAR", KindDeleted: "DELETED", KindTarEnd: "TAR_END", KindBye: "BYE", KindFail: "FAIL", KindReady: "READY", KindWake: "WAKE",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "UNKNOWN"
}

// Hello is the guest's first frame. Machines restored from one snapshot share
// it, so it holds nothing that tells one machine from another.
type Hello struct {
	Proto  int    `json:"proto"`
	Kernel string `json:"kernel"` // as uname -r
}

// Init gives the guest what it cannot know by itself.
type Init struct {
	RunID    string    `json:"runID"`
	WallTime time.Time `json:"wallTime"`
	Entropy  []byte    `json:"entropy"`
	Nonce    string    `json:"nonce"` // READY gives it back
	// Network is where the machine is on a segment; nil is no network.
	Network *vm.Network `json:"network,omitempty"`
	// Root says that the root directory of commands is on a disk of its own.
	Root bool `json:"root,omitempty"`
}

// Ready answers INIT: the guest has its clock, its random numbers and its
// workspace.
type Ready struct {
	Nonce  string `json:"nonce"`
	BootID string `json:"bootID"` // the kernel's, made after INIT
}

// Exec is the command to run.
type Exec struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env,omitempty"`
	Cwd  string            `json:"cwd,omitempty"` // below the workspace; empty is the workspace
}

// Beat says that the guest lives while its command runs.
type Beat struct {
	MemoryFreeKiB int64 `json:"memoryFreeKiB"`
}

// Signal is a signal for the running command: "TERM" or "KILL".
type Signal struct {
	Name string `json:"name"`
}

// Get asks for the changes since the last tar stream was put in.
type Get struct {
	Patterns []string `json:"patterns,omitempty"`
	Files    int      `json:"files"` // at most so many entries
	Bytes    int64    `json:"bytes"` // at most so many bytes of content
}

// TarEnd follows the last chunk of a tar stream.
type TarEnd struct {
	Tally
	Deleted int `json:"deleted"` // paths in the DELETED frames before
}

// Fail is a failure of the step the host asked for.
type Fail struct {
	Code    vm.FailureCode `json:"code"`
	Message string         `json:"message"`
}
