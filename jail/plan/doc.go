// Package plan holds the list of steps that turn a freshly cloned process into
// a jailed worker. A plan is data: each step names one operation, its operands,
// the process that carries it out and the reason it is there. Printing a plan
// is the manual of the jail; running one is the business of packages jail
// (launcher side) and jail/stage (child side).
//
// The package imports almost nothing, since the stage links it and pays for
// every import before its first instruction.
//
//	p, err := jail.Compile(spec, jail.Probe())
//	fmt.Print(p)
//
// # Limitations
//
// A plan names paths, not descriptors: it is valid for the host it was compiled
// for, as long as these paths stay what they were.
package plan
