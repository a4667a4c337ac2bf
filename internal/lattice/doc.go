// Package lattice sees a wasmCloud lattice and speaks to its hosts.
//
// It has four parts. [Client] sends the requests of the control interface.
// [DecodeEvent] reads the events that hosts publish. [Projection] folds events
// and answers into what is known: pure, without clock or connection. [Observer]
// keeps a projection true over NATS, and carries commands out.
//
// # What is believed
//
// Events are news, the inventory is the truth. A component's event carries the
// annotations and the image from before the command, starting a component emits
// its event twice, and any event can be lost or come twice. So an event changes
// what it is sure about at once, and its host is then asked for its inventory;
// questions about one host are joined. What an event said after a question was
// sent is not undone by the answer, for the answer may be older.
//
// No host enters a projection but by its own inventory. Nothing is carried over
// from an earlier observer, a late or repeated event brings no host back, and
// what a host runs is known from the moment the host is.
//
// # Leases
//
// Any event or answer of a host renews its lease. When the lease is over the
// host is asked. If nobody listens there, or several questions in a row stay
// without an answer, the host is gone, which is a [Change]. Heartbeats that say
// what is known already renew the lease and do nothing else.
//
// # Concurrency
//
// A Client may be used from several goroutines. A Projection may not. An
// Observer may: all that it knows (its projection, the commands that wait, the
// questions that are open, the configurations that are wanted, the change that
// is still to be told, its counters) is guarded by Observer.mu, which is never
// held while something is sent, waited for or called back. Observer.first
// orders the reading of links and configurations before the first host; it is
// locked before mu, never while mu is held. OnChange is called by one goroutine,
// one call after the other, and changes that come in meanwhile are added up.
//
// Values that leave the package share maps and slices with it and with each
// other: they are never changed once they are made, and receivers must not
// change them either.
package lattice
