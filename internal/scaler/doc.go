// Package scaler keeps applications true: from a manifest it lists what has to
// run and to be linked, and from that and what a lattice shows it plans what to
// tell its hosts, and says how each part is. It is pure: values in, values out,
// no connection and no clock, and all its functions may be called concurrently.
//
// # Use
//
// [List] turns a manifest into [Scaler]s, [Plan] turns an [Input] into an
// [Outcome]. Whoever calls Plan sends the batches, one for each host at a time
// or all at once, and plans again when something has changed: the lattice, what
// is desired, a command that succeeded or failed, the time of [Outcome.Retry].
// Between two plans it keeps
//
//   - what was sent and not answered, as [Input.Pending]: it is planned for as if
//     it had succeeded, and nothing is sent to the same thing meanwhile;
//   - [Outcome.Owned], until the next plan;
//   - [Outcome.Backoff], to which it adds what fails with [Backoff.Failed], and
//     from which it takes what deserves a new chance with [Backoff.Without];
//   - [Outcome.Rows], so that what waits keeps its time.
//
// A plan does not depend on the order in which a lattice shows anything. On a
// lattice that is as desired it has no commands, and reaching that takes a
// bounded number of plans.
//
// # Rules
//
// Whose: instances with the annotations of the application, see [Owned], are its
// own; nothing is told to any other. A host has one entry for each id, so a host
// where a foreign component runs is no place for one's own. A foreign provider
// serves as well as one's own and is counted.
//
// Where: [Shares] divides instances over spreads, labels say which hosts suit.
// Each spread gets at least one host, a provider's as many as it has instances,
// as long as that is possible at all, and further hosts in proportion. What runs
// in the right place stays there. What is missing goes where there is least of
// it, what is too much goes from where there is most. No more commands are made
// than entries have to change: one for each, and two where something else runs
// there.
//
// What is satisfiable proceeds, and the rest says why it does not: it waits for
// hosts or for what is not the application's to make, or it has failed because
// others are in the way.
//
// In which order: configurations before what needs them. A host does not replace
// an image while it runs, nor annotations, so what is not right is stopped, and
// started anew when it is seen to be gone; what cannot be started anew yet is not
// stopped either. Links are compared in full. Cleaning up is a difference of
// resources: what neither the application nor [Input.Others] needs goes,
// configurations last.
//
// How often: what failed is tried again at the same place after the times of
// [Backoff]. After several failures in a row other hosts are preferred. Its words
// stay in the status for as long as they are true. Drift is no failure and is
// repaired at once.
package scaler
