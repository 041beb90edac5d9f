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
	"runtime"
)

//go:embed *
var files embed.FS

// ErrMissing is returned when the launcher was built without its stage.
var ErrMissing = errors.New("stage: not part of this build: run make build")

// Bytes is the stage for this architecture.
func Bytes() ([]byte, error) {
	body, err := files.ReadFile("stage-" + runtime.GOARCH)
	if err != nil {
		return nil, ErrMissing
	}
	return body, nil
}
