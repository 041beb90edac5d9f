// Package api is what is said between "cellblock serve" and its clients: the bodies of
// requests and answers under /v1, and the configuration that the command hands to the
// serving program. openapi.json, which the server hands out, says the same for clients
// in other languages; a test of package server holds the two together.
//
// Durations are seconds, as numbers that may have a fraction. Bodies are strict: a
// field that is not listed here is refused by name.
//
// # Limitations
//
// A cell that asks a question (input, getpass) or makes a host call is answered in a run
// that its caller drives (Ask, Step) and gets an error at once in one that it does not.
package api
