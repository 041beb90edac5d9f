// Package host is the one door from a worker to the host: which calls there are,
// who may make which, and what becomes of each.
//
// A call's identity is what the host itself asked to run on that connection; no
// field of it comes from the worker. A tool is code of the operator's, or of the
// launcher, that answers a call. It is not reached unless the policy allows the
// call and its arguments fit the tool's schema.
package host
