package seccomp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"runtime"
	"sync"
)

// ErrNoCompiler says that this build has no libseccomp to compile a profile
// with that is not built in.
var ErrNoCompiler = errors.New("this build can load the built-in profiles only: build it with cgo and -tags seccomp")

// compiled keeps what this process has compiled, by digest.
var compiled sync.Map

// Load returns the filter of a profile for this machine's architecture: the
// one compiled ahead when the text is that of a built-in profile, else the one
// that libseccomp makes of it now. The name is for people; it does not select
// anything.
func Load(name string, document []byte) (Filter, error) {
	sum := digest(document)
	if filter, ok := builtin(sum, runtime.GOARCH); ok {
		filter.Name = name
		return filter, nil
	}
	if known, ok := compiled.Load(sum); ok {
		filter := known.(Filter)
		filter.Name = name
		return filter, nil
	}
	filter, err := Compile(name, document, runtime.GOARCH)
	if err != nil {
		return Filter{}, err
	}
	compiled.Store(sum, filter)
	return filter, nil
}

func digest(document []byte) string {
	sum := sha256.Sum256(document)
	return "sha256:" + hex.EncodeToString(sum[:])
}
