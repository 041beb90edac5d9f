// Package parity holds the product to its first promise: one policy, and the same
// answer in every mode. A table of operations in a table of places, done by each of
// the actors that a session has, runs in sessions of all four modes; what report
// would deny is what enforce denies, shadow leaves the host as it was and shows the
// session its own changes, and off reports nothing.
package parity
