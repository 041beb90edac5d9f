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
// A call can be driven by the host, step by step ([Session.Run]): each step tells
// what has happened, and what the call waits for: the answer to a host call or to
// input(), an approval, or the word on an effect whose outcome nobody knows. What
// was decided can be kept and repeated ([Run.Checkpoint], [Session.RunFrom]), and a
// [Batch] runs calls of several sessions at once. [Session.Call] is the same way,
// answered by the functions in [Options].
//
// With [Options.Audit] every session is recorded, by package audit: the start of
// a worker with the facts of its jail, each cell before it runs and after it has,
// what the policy does not allow. Under enforce nothing runs that cannot be
// recorded.
//
// With [Options.Stock] a session gets a worker that is ready already, where there is one
// for it; why it is made so stands in adr-001-stock.md.
//
// # Limitations
//
// Report mode blocks nothing outside the ground floor of the jail. Where Linux has no
// seccomp notification, what it lists comes from the interpreter's audit hook alone, and
// writes of child processes and native code are not in it: the tier says so.
package kernel
