//go:build !seccomp || !cgo

package seccomp

import "fmt"

// Compile cannot work in a build without libseccomp. The built-in profiles
// need none.
func Compile(name string, _ []byte, _ string) (Filter, error) {
	return Filter{}, fmt.Errorf("system call profile %s: %w", name, ErrNoCompiler)
}
