// Command gen compiles the built-in system call profiles ahead, for every
// supported architecture. It is run from the root of the repository, by make
// golden:
//
//	go run -tags seccomp ./jail/seccomp/gen
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"cellblock/jail/seccomp"
)

const (
	sources = "profiles/seccomp"
	target  = "jail/seccomp/builtin"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run() error {
	files, err := filepath.Glob(filepath.Join(sources, "*.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: no profiles, run from the root of the repository", sources)
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		document, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		for _, arch := range []string{"amd64", "arm64"} {
			filter, err := seccomp.Compile(name, document, arch)
			if err != nil {
				return err
			}
			out := filepath.Join(target, name+"."+arch+".bpf")
			if err := os.WriteFile(out, seccomp.Pack(filter), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
