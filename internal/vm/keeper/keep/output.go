package keep

import (
	"bytes"

	"tidewait/internal/vm"
)

// Most bytes that are remembered of what a command prints, and of one chunk; and
// what a chunk takes beside its bytes.
const (
	maxOutput = 4 << 20
	maxChunk  = 32 << 10
	chunkCost = 64
)

// output is the end of what a command printed, in the order in which it came.
type output struct {
	begin  vm.Position // of the first chunk; all before it is forgotten
	chunks []chunk
	size   int // what they take
}

// chunk is what one stream said in one piece.
type chunk struct {
	stream byte
	bytes  []byte
}

// add remembers what a stream said. What is of no stream, or is nothing, is not
// remembered: a guest may say it without end.
func (o *output) add(stream byte, b []byte) {
	if len(b) == 0 || stream != 1 && stream != 2 {
		return
	}
	if n := len(o.chunks); n > 0 && o.chunks[n-1].stream == stream && len(o.chunks[n-1].bytes)+len(b) <= maxChunk {
		o.chunks[n-1].bytes = append(o.chunks[n-1].bytes, b...)
	} else {
		o.chunks = append(o.chunks, chunk{stream, bytes.Clone(b)})
		o.size += chunkCost
	}
	for o.size += len(b); o.size > maxOutput; {
		o.forget(o.chunks[0])
		o.chunks = o.chunks[1:]
	}
}

func (o *output) forget(c chunk) {
	o.size -= len(c.bytes) + chunkCost
	o.begin.Lines += int64(bytes.Count(c.bytes, []byte{'\n'}))
	if c.stream == 1 {
		o.begin.Stdout += int64(len(c.bytes))
	} else {
		o.begin.Stderr += int64(len(c.bytes))
	}
}
