package seccomp

import "embed"

//go:embed builtin/*.amd64.bpf
var compiledAhead embed.FS
