// Package simhost simulates wasmCloud hosts, faithfully to their protocol: what
// they subscribe to, what they answer, which events they publish, in which
// order, and with what words they refuse. It behaves as version 1.9.2 does,
// oddities included; no component is instantiated and no provider's process is
// run. The package speaks the wire only and shares no code with what observes
// and commands hosts, so that a misunderstanding cannot be on both sides.
//
// A [Lattice] is what hosts share: a NATS connection, the store of configs and
// links, the rules that make hosts fail, and the record of what they were told.
// Hosts cost no goroutine of their own, and hundreds fit in one process.
//
// What is not simulated: calls of components, the messages between a host and
// its providers (wasmbus.rpc), and what hosts leave in JetStream. The store
// lives as long as the Lattice and outlives its hosts.
package simhost
