// Command cellblock-stage is the first process of a jail. It is embedded in
// cellblock (package jail/stagebin) and started by package jail, never by a
// person.
package main

import (
	"os"
	"runtime"

	"cellblock/jail/stage"
)

func init() {
	// The main goroutine stays on the main thread: pid 1's thread is the one
	// that is restricted, witnessed and that the worker is born from.
	runtime.LockOSThread()
}

func main() { stage.Main(os.Args) }
