// Command cellblock-rego answers the queries to which policies delegate host calls. It
// is started by cellblock, reads requests as JSON lines from standard input and writes
// an answer to each; package policy/rego says what they are. It is a program of its own
// since its engine costs a process tens of milliseconds before main.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"cellblock/policy/rego"
)

// Bounds of the process: a module that wants more memory ends it, which is a denial.
const (
	softMemory = 256 << 20
	hardMemory = 1 << 30
)

func main() {
	debug.SetMemoryLimit(softMemory)
	for resource, most := range map[int]uint64{unix.RLIMIT_DATA: hardMemory, unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 64} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			fmt.Fprintln(os.Stderr, "cellblock-rego: setrlimit:", err)
			os.Exit(1)
		}
	}
	if err := rego.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cellblock-rego:", err)
		os.Exit(1)
	}
}
