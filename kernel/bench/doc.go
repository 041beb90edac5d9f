// Package bench measures sessions beside what else could run the same code: the bare
// interpreter, bubblewrap, crun, runc, firejail and ipykernel, as far as they are
// installed.
//
//	report, err := bench.Run(ctx, bench.Options{Program: "/usr/bin/cellblock"})
//	report.Print(os.Stdout)
//
// All ways of a row are taken in turn, round after round, so that what else the
// machine does meets all of them, and their ratios mean something where their times
// do not. Both ends of a conversation are pinned to one processor, or neither.
//
// # Limitations
//
// The ways isolate differently, and their names say how. A way that cannot be had
// here stands in the report with the reason, and is never left out.
package bench
