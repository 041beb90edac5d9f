package seccomp

import "embed"

//go:embed builtin/*.arm64.bpf
var compiledAhead embed.FS
