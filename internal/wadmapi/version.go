package wadmapi

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// versionSource names versions that were put without one. Each is greater than
// the one before, however many are asked for in one millisecond and whatever the
// clock does. It may be used concurrently.
type versionSource struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
	latest  uint64 // milliseconds
}

func (v *versionSource) next() (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.entropy == nil {
		v.entropy = ulid.Monotonic(rand.Reader, 0)
	}
	v.latest = max(v.latest, ulid.Timestamp(time.Now()))
	id, err := ulid.New(v.latest, v.entropy)
	if err != nil {
		return "", fmt.Errorf("make up a version: %w", err)
	}
	return id.String(), nil
}
