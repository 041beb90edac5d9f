// Package rego evaluates the queries to which policies delegate host calls, with the
// Open Policy Agent's engine, and runs the tests of their modules.
//
//	query, err := rego.Compile(ctx, "data.tools.decision", modules)
//	effect, reasons, obligations, err := query.Evaluate(ctx, op)
//
// What a query is asked is the operation alone: session, purpose, role, tool,
// arguments and action. What it must answer is one object:
//
//	{"effect": "allow" or "deny", "reasons": [text…], "obligations": [word…]}
//
// in which reasons and obligations may be left out. Anything else, an undefined result,
// an error of a built-in function and the end of ctx are errors, and an error is a
// denial to whoever asks.
//
// Modules see no clock, no network, no randomness and nothing of the machine: the
// built-in functions for these are not there, so that a module that names one does not
// compile.
//
// # Limitations
//
// Linking this package costs a process tens of milliseconds before main. It is linked
// by cmd/cellblock-rego alone, see ADR.md; the launcher speaks to that through
// kernel/delegate. Memory is bounded by the process, not by this package.
package rego
