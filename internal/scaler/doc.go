// Package scaler keeps applications true: from a manifest it lists what has to
// run and to be linked, and from that and what a lattice shows it plans what to
// tell its hosts and says how each part is. It is pure: values in, values out,
// no clock, no connection.
package scaler
