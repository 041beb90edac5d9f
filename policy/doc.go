// Package policy holds the one value that says what a session may do, and the
// pure function that decides a single operation against it.
//
//	p := policy.Default(policy.Facts{Mode: policy.Enforce, SessionDir: "/srv/s1"})
//	d := p.Decide(policy.Op{Kind: policy.Write, Path: "/etc/hosts"})
//	fmt.Println(d.Effect, d.Rule, d.Reason) // deny fs.write.outside …
//
// The same value feeds the report, the audit and the plan of the jail, so there
// is no second copy of a rule. Nothing in this package does I/O, reads the
// clock or looks at the environment: what it must know about the session comes
// in as [Facts].
//
// # Limitations
//
// Paths are compared as they are given, component by component, after cleaning.
// Symbolic links are resolved by whoever observed the operation, since only the
// observer knows at which moment. Report mode blocks nothing.
package policy
