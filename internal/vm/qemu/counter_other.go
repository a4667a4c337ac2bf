//go:build !amd64

package qemu

// counterMHz is 0: what a translated guest reads is not a counter of the host's.
func counterMHz() uint64 { return 0 }
