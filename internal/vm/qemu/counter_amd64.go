package qemu

import (
	"sync"
	"time"
)

// timeStampCounter reads the processor's own counter of time.
func timeStampCounter() uint64

// counterTime is how long the rate of the counter is measured.
const counterTime = 50 * time.Millisecond

// counterMHz is the rate of the counter. A translated guest reads the host's
// counter, and has nothing else to find the rate by. Whole megahertz are always
// the same, and wrong by less than a second an hour.
var counterMHz = sync.OnceValue(func() uint64 {
	pause := time.NewTimer(counterTime)
	began, first := time.Now(), timeStampCounter()
	<-pause.C
	took, last := time.Since(began), timeStampCounter()
	return uint64(float64(last-first)/float64(took.Microseconds()) + 0.5)
})
