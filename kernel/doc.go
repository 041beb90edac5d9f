// Package kernel runs the cells of a session. "Kernel" is meant as in Jupyter.
//
//	s, err := kernel.Open(kernel.Options{SessionDir: "/srv/s1"})
//	if err != nil { … }
//	defer s.Close()
//	r := s.Call(ctx, kernel.Call{Code: "1 + 1"})
//	fmt.Println(r.Content[0].Text) // 2
//
// A session has one worker at a time, an interpreter in a jail. A worker that
// dies, is killed or breaks the wire's rules ends its generation; the next call
// starts another one and says that state was lost. Every call gets a reply;
// nothing that a worker prints or sends makes the launcher crash or its memory
// grow without bound.
//
// With [Options.Audit] every session is recorded, by package audit: the start of
// a worker with the facts of its jail, each cell before it runs and after it has,
// what the policy does not allow. Under enforce nothing runs that cannot be
// recorded.
//
// # Limitations
//
// Report mode blocks nothing outside the ground floor of the jail, and what it
// lists comes from the interpreter's audit hook and from what modules declare:
// writes of child processes and native code are not seen in it.
package kernel
