// Package extension runs the operator's extensions: trusted Python, in processes
// that share nothing with a sandbox. It finds their files, has them registered once
// in a worker that all sessions share, and runs their tools, hooks and slash
// commands in a worker that each session has to itself.
//
//	files, warnings := extension.Discover([]extension.Root{{Dir: "/home/me/.cellblock/extensions"}})
//	shared := extension.Share(launch)
//	known, more := shared.Register(ctx, files)
//	s := extension.New(extension.Options{Launch: launch, Call: door}, known)
//	tools := s.Tools()
//
// A file is taken only when nobody but the operator or root can have written it.
// What registered it is what runs: a worker is given the text that was read, and a
// file that changes afterwards counts from the next reload on.
//
// # Limitations
//
// Extensions run with the operator's rights and are no boundary against each other:
// those of one session share a process. A handler that neither returns nor can be
// stopped costs the session its worker.
package extension
