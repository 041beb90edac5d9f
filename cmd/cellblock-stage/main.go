// Command cellblock-stage is the child side of a jail's start. The launcher
// carries it and starts it; run by hand it has no launcher and ends at once.
package main

import "cellblock/jail/stage"

func main() { stage.Main() }
