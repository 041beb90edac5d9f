// Package jail starts a program in a sandbox: namespaces, a view of the host's
// files, no capabilities, Landlock, a system call filter, limits, and a first
// process that reaps. An intent (Spec) becomes an ordered list of steps (Plan),
// and only Start costs a system call.
//
//	p, err := jail.Compile(spec, jail.Probe())
//	if err != nil {
//		return err // *SpecError or *MissingFeatureError, which names the remedy
//	}
//	fmt.Print(p) // every step with its reason
//	process, err := jail.Start(ctx, p, jail.StartOptions{Stdout: w})
//	if err != nil {
//		return err // nothing is left, and no foreign code has run
//	}
//	<-process.Done()
//
// The start is witnessed: before the worker is born the jailed thread itself
// tries what is forbidden, and Start compares the results with the plan.
// A jail with a room (Spec.Room) gets one directory more when it runs
// (Process.Attach), which the launcher looks at in its turn.
// Why a stage of our own starts the worker stands in adr-001-own-stage.md. With
// Spec.Forked the worker is not executed but forked of a warm program (Parent), and
// joins what the stage has built: adr-002-forked-workers.md.
//
// # Limitations
//
// A path that is hidden by its name can be read under another name, if the host
// has hard links or bind mounts of it elsewhere. Paths that do not exist at the
// start are not hidden when they come to be later, since the tree is a live
// view. Processes of one user outside of the jail can signal and trace those
// inside; the reverse is refused. Timing, caches and the processor's side
// channels are not closed.
//
// As root, files of owner 0 belong to the worker's id inside, so that it may
// read what root may: what must stay secret has to be hidden. Files of other
// owners keep them.
package jail
