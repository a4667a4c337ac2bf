// Package vm defines how a phase's command is run on a node: a [Backend]
// creates a machine, and the machine takes files in, runs one command, gives
// the changed files back and is destroyed. Package qemu runs real virtual
// machines, package process runs Linux namespaces without one.
package vm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"time"

	"tidewait/internal/capacity"
)

// Backend is one way of running machines. It is safe for concurrent use.
type Backend interface {
	// Name is the backend's name in mission documents: "microvm" or "process".
	Name() string
	// Probe boots or spawns something real and reports what it got.
	Probe(ctx context.Context) Report
	// Create starts the machine of a run. It is idempotent by Spec.RunID: a
	// second call never starts a second machine. When it fails, nothing is left.
	Create(ctx context.Context, s Spec) (VM, error)
	// List names the runs of every machine this backend left on the host,
	// including those of an agent that died.
	List(ctx context.Context) ([]string, error)
	// Starts counts how machines were started since the backend was made.
	Starts() Starts
	// Destroy ends the machine of a run and removes its files. It waits for the
	// machine to go as long as ctx lasts, and can be called again when that was
	// too short. A run that is not there is success.
	Destroy(ctx context.Context, runID string) error
}

// VM is one running machine. Its methods are called one after another.
type VM interface {
	// Inject unpacks a tar stream into the machine's empty workspace.
	Inject(ctx context.Context, tar io.Reader) (Manifest, error)
	// Run executes one command in the workspace and waits for its end. When ctx
	// ends the command gets TERM, a grace period, then the machine is killed. With
	// a cause that matches [ErrKeep], a machine whose command ended within its
	// grace is left alive: the error matches [ErrEnded], and the exit is the
	// command's.
	Run(ctx context.Context, c Command, logs LogSink) (Exit, error)
	// Collect writes the files that changed since Inject as a tar stream.
	// patterns are slash-separated globs with **; none means every change. Only
	// when it succeeds is what was written to w complete and checked: regular
	// files, symbolic links and new empty directories with clean relative names,
	// never anything in a .git directory.
	Collect(ctx context.Context, patterns []string, limits Limits, w io.Writer) (Result, error)
	// Info says what the machine is.
	Info() Info
}

// Adopter is a backend whose machines can outlive the program.
type Adopter interface {
	Backend
	// Adopt takes over the machine of a run that an earlier program kept. The
	// error says why that is not possible; the run is still to be destroyed then.
	// It is called before Create of the same run.
	Adopt(ctx context.Context, runID string) (Kept, error)
	// Sweep ends what earlier programs left behind that no journal names, and
	// returns what it found. It is called before the first Create.
	Sweep(ctx context.Context) (Leaks, error)
}

// Kept is a machine with a keeper. It ends with the lease that its backend was
// given, whether its program lives or not.
type Kept interface {
	VM
	// Keep has the machine outlive this program from now on.
	Keep() error
	// Leave lets go of the machine without ending it, for the next program. What
	// is being done with it fails.
	Leave()
	// Follow is Run for a command that an earlier program may have begun: it runs
	// the command if that is not so, and gives sink what it has printed after
	// from, the zero Position being all. It is called before Collect.
	Follow(ctx context.Context, c Command, from Position, sink LineSink) (Exit, error)
	// EndedAt is when the command ended, after the host's boot, whoever was there
	// then; 0: it has not, or nobody knows. It may be called at any time.
	EndedAt() time.Duration
}

// ErrLease is matched by the error of a step whose machine ended with the lease.
var ErrLease = errors.New("the machine ended with the lease of its node")

// Position is how much of a command's output there has been.
type Position struct {
	Stdout int64 `json:"stdout"` // bytes
	Stderr int64 `json:"stderr"` // bytes
	Lines  int64 `json:"lines"`  // ends of lines in both
}

// Line is a line that a command printed, or news of lines that nobody has kept.
type Line struct {
	Stream string // as of a LogSink
	Text   []byte
	End    Position
	// Lost counts lines before End that were printed while no program was there,
	// and of which there were too many. Then there is no Text.
	Lost int64
}

// LineSink receives output.
type LineSink func(Line)

// Leaks counts what was found and ended that nothing should have left behind.
type Leaks struct {
	Directories int64 `json:"directories,omitempty"` // of runs, without a journal that can be read
	Processes   int64 `json:"processes,omitempty"`   // keepers without a run
	Cgroups     int64 `json:"cgroups,omitempty"`     // without a run
}

// ErrKeep is matched by the cause of a context that ends a Run and asks for what
// the command has made by then.
var ErrKeep = errors.New("what there is is to be kept")

// ErrEnded is matched by the error of a Run that was ended early and whose
// command ended within its grace.
var ErrEnded = errors.New("the command was ended early")

// Spec is the machine to create.
type Spec struct {
	RunID     string `json:"runId"`
	CPUMilli  int64  `json:"cpuMilli"` // thousandths of a CPU; virtual CPUs are rounded up
	MemoryMiB int64  `json:"memoryMiB"`
	DiskMiB   int64  `json:"diskMiB"` // size of the scratch disk the workspace lives on
	// Keep gives the machine a keeper, so that it is a [Kept]. It cannot have a NIC.
	Keep bool `json:"-"`
	// Image is the name of the image that commands find as their root directory;
	// empty is the backend's own.
	Image string `json:"image,omitempty"`
	// Root is what Image names. It is the program's that made it, and so is never
	// stored.
	Root *Root `json:"-"`
	// NIC is the machine's way to the others of its run; nil is no network at
	// all. It belongs to the program that made it, and so is never stored.
	NIC *NIC `json:"-"`
}

// Root is the root directory of commands.
type Root struct {
	Name string // of its image, with a digest, for people
	// File is a file system, in whole sectors, that the machine reads and never
	// writes. The machine inherits it; whoever made it closes it.
	File *os.File
	// Env are the variables that its image sets.
	Env map[string]string
}

// Network is what the machine has to know of its segment; nil is no segment.
func (s Spec) Network() *Network {
	if s.NIC == nil {
		return nil
	}
	return &s.NIC.Network
}

// NIC is a network device on a private segment. Package segment makes it.
type NIC struct {
	// Cable is the machine's end of a pair of datagram sockets that carry one
	// Ethernet frame in each message. The machine inherits it; whoever made it
	// closes it.
	Cable   *os.File
	Network Network
}

// Network is what a machine has to know of its segment.
type Network struct {
	Name    string       `json:"name"`    // the machine's host name
	MAC     string       `json:"mac"`     // such as 02:00:0a:54:57:01
	Address netip.Prefix `json:"address"` // IPv4
	MTU     int          `json:"mtu"`     // bytes
	Hosts   []HostName   `json:"hosts"`   // all machines of the segment
}

// HostName is what an address is called. Several addresses may share a name.
type HostName struct {
	Address netip.Addr `json:"address"`
	Names   []string   `json:"names"` // the machine's own first
}

// Command is what to run in a machine.
type Command struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env,omitempty"`
}

// Exit is how a command ended. Exactly one of Code (when Signal is empty) and
// Signal says so.
type Exit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"` // such as "SIGSEGV"
	OOM    bool   `json:"oom,omitempty"`    // killed because memory ran out
}

// Killed reports whether a command was ended by SIGKILL, also when a shell
// around it says so.
func (e Exit) Killed() bool { return e.Signal == "SIGKILL" || (e.Signal == "" && e.Code == 128+9) }

// MaxLine is how many bytes a [LogSink] gets at once.
const MaxLine = 64 << 10

// LogSink receives output. stream is "stdout" or "stderr"; line has no newline
// and may be kept. A line of more than [MaxLine] bytes comes in pieces, of which
// all but the last have so many.
type LogSink func(stream string, line []byte)

// Manifest is what a tar stream held.
type Manifest struct {
	Files  int    `json:"files"`  // regular files and symbolic links
	Bytes  int64  `json:"bytes"`  // their content, without the stream's own
	SHA256 string `json:"sha256"` // of the tar stream, hex
}

// Result is a collected tar stream: changed files in the stream, deleted paths
// beside it.
type Result struct {
	Manifest
	Deleted []string `json:"deleted,omitempty"` // slash-separated, relative, sorted
}

// MaxDeletedBytes bounds the names of the deleted files of one run together, as
// [DeletedBytes] counts them: they travel in the result of an activity, of which
// Temporal takes 2 MiB.
const MaxDeletedBytes = 3 << 19

// DeletedBytes is how many bytes names take in a result.
func DeletedBytes(names []string) int {
	text, err := json.Marshal(names)
	if err != nil {
		panic(err) // strings
	}
	return len(text)
}

// Limits bound what a machine may give back.
type Limits struct {
	Files int   // entries of the tar stream, directories too
	Bytes int64 // content of the files
}

// Info says what a machine really is.
type Info struct {
	Accel  string `json:"accel"`  // "kvm", "tcg" or "none"
	Kernel string `json:"kernel"` // the kernel the command saw, as uname -r
	// Isolation says in words what stands between the command and the host.
	Isolation string `json:"isolation"`
	Start     Start  `json:"start,omitzero"`
	// Image is the image that commands found as their root directory, with its
	// digest; empty: the backend's own.
	Image string `json:"image,omitempty"`
}

// Start is how a machine was started. It is zero where there is one way only.
type Start struct {
	Kind StartKind `json:"kind,omitempty"`
	Why  string    `json:"why,omitempty"` // why it was not restored from a snapshot
}

// StartKind is a way of starting a machine.
type StartKind string

// The ways of starting a machine.
const (
	StartCold     StartKind = "cold"     // booted
	StartSnapshot StartKind = "snapshot" // restored from the snapshot of a machine that had booted
)

// Starts counts how machines were started. It is zero where there is one way
// only.
type Starts struct {
	Snapshot int64 `json:"snapshot,omitempty"` // restored from a snapshot
	Cold     int64 `json:"cold,omitempty"`     // booted
	FellBack int64 `json:"fellBack,omitempty"` // a snapshot was there and failed, so that the machine had to be booted
	// Why says why the latest start that fell back did; when none did, why the
	// latest snapshot could not be made, or why there are none at all.
	Why       string `json:"why,omitempty"`
	Snapshots int64  `json:"snapshots,omitempty"` // that are kept
	Bytes     int64  `json:"bytes,omitempty"`     // of them
}

// Report is what a probe found.
type Report struct {
	OK       bool               `json:"ok"`
	Why      string             `json:"why,omitempty"` // why not, or what is weaker than asked
	Info     Info               `json:"info"`
	Network  bool               `json:"network"`  // machines can be on a segment; Why says why not
	Enforced bool               `json:"enforced"` // CPU, memory and disk limits are really enforced, but for what Why says
	Overhead capacity.Resources `json:"overhead"` // per machine, beyond its Spec
	Took     time.Duration      `json:"took"`     // nanoseconds from start to answer
}

// FailureCode says why a step of a machine failed, for code to decide on.
type FailureCode string

// The closed list of failure codes.
const (
	BootFailed      FailureCode = "boot_failed"       // the machine did not answer in time, after retries
	MachineDied     FailureCode = "machine_died"      // it answered once, then was gone
	CommandNotFound FailureCode = "command_not_found" // argv[0] does not exist or is not executable
	InjectFailed    FailureCode = "inject_failed"     // files did not arrive whole
	CollectFailed   FailureCode = "collect_failed"    // results did not arrive whole, or break a rule
	ResultsTooLarge FailureCode = "results_too_large" // more than Limits allow
	StepTimeout     FailureCode = "step_timeout"      // a step outlived its own deadline
	SegmentFailed   FailureCode = "segment_failed"    // the network between the machines of a run ended
	// An image could not be had: its registry or layout does not have it, does
	// not give it away, does not answer, or may not be asked by this node.
	ImageUnavailable FailureCode = "image_unavailable"
	// An image was had and cannot be used: it is not what its digest says, not
	// for the node's architecture, malformed, or above a limit.
	ImageInvalid FailureCode = "image_invalid"
)

// Failure is the error of a machine's step. Message is one sentence for people.
type Failure struct {
	Code    FailureCode
	Message string
}

func (f *Failure) Error() string { return f.Message }

// IsImageInvalid reports whether err says that an image cannot be used, so that
// starting its machine again would not help.
func IsImageInvalid(err error) bool {
	var f *Failure
	return errors.As(err, &f) && f.Code == ImageInvalid
}
