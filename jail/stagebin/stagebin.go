// Package stagebin holds the stage's executable, embedded in the launcher so
// that both always come from one build.
//
// # Limitations
//
// Without a build of the stage the package compiles, and Bytes says so.
package stagebin

import (
	"embed"
	"errors"
	"io"
	"runtime"
)

//go:embed *
var files embed.FS

// ErrMissing is returned when the launcher was built without its stage.
var ErrMissing = errors.New("stage: not part of this build: run make build")

// Open returns the stage for this architecture. It is read from the launcher's own
// file as it is needed; nothing is copied.
func Open() (io.ReadCloser, error) {
	file, err := files.Open("stage-" + runtime.GOARCH)
	if err != nil {
		return nil, ErrMissing
	}
	return file, nil
}
