// Package trial runs cases of policies in real jails: each says what is to become of
// an operation or a cell, in which mode, by which rule.
//
//	report, err := trial.Run(ctx, suites, trial.Options{Kernel: kernel.Options{PythonBin: "python3"}})
//	for _, r := range report.Results { if r.Failure != "" { … } }
//
// Operations of one file and mode share sessions as long as none touches what another
// does, so that each finds its files as if it were alone; every session has a
// directory and a home of its own, with the file's set-up in both. A cell has a
// session to itself.
//
// What Linux does is held against what the policy says as well as against what is
// expected: a refusal that is not the policy's, and a denial that nothing carries out,
// fail the case.
//
// # Limitations
//
// What a mode does not refuse is done. On files of the host outside of the places that
// are made for a case, an operation is carried out in a form that changes nothing: a
// file is opened and not written to, made and removed again, given the mode it has.
// Removing and renaming have no such form there, and are refused. Cells are run as
// they are.
package trial
