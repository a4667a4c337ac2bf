package guest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/cespare/xxhash/v2"

	"tidewait/internal/vm"
)

// NewSum returns the sum by which both sides know that a tar stream arrived whole.
// It finds what was lost or damaged on the way. A guest that lies is not found by any
// sum, since it makes its own; and for a cryptographic one an emulated processor took
// an eighth of the time of a whole job.
func NewSum() hash.Hash64 { return xxhash.New() }

// Tally is what a guest says that a tar stream held.
type Tally struct {
	Files int    `json:"files"` // regular files and symbolic links
	Bytes int64  `json:"bytes"` // their content, without the stream's own
	Sum   string `json:"xxh64"` // of the tar stream, 16 hex digits
}

// SumText is how a tally has a sum.
func SumText(sum hash.Hash64) string { return fmt.Sprintf("%016x", sum.Sum64()) }

// streamDigests are what the host makes of a tar stream while it passes: the sum that
// the guest makes too, and the digest by which everybody else knows the stream.
type streamDigests struct {
	sum    hash.Hash64
	digest hash.Hash
}

func newStreamDigests() *streamDigests {
	return &streamDigests{sum: NewSum(), digest: sha256.New()}
}

// Write implements io.Writer.
func (d *streamDigests) Write(p []byte) (int, error) {
	d.sum.Write(p)
	return d.digest.Write(p)
}

// manifest is that of a stream of which the guest says t.
func (d *streamDigests) manifest(t Tally) vm.Manifest {
	return vm.Manifest{Files: t.Files, Bytes: t.Bytes, SHA256: hex.EncodeToString(d.digest.Sum(nil))}
}
