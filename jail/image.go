package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"cellblock/jail/stagebin"
)

// openStage is replaced by the fault test, whose stage lets calls fail.
var openStage = stagebin.Open

var (
	imageMu   sync.Mutex
	imageFile *os.File
)

// image returns the stage in a sealed memory file. Executing it needs no path
// that the jail's id could reach, and nothing can change it afterwards
// (CVE-2019-5736). It is made once for the life of the launcher.
func image() (*os.File, error) {
	imageMu.Lock()
	defer imageMu.Unlock()
	if imageFile != nil {
		return imageFile, nil
	}
	body, err := openStage()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("cellblock-stage", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		// Linux before 6.3 does not know MFD_EXEC and needs no leave.
		fd, err = unix.MemfdCreate("cellblock-stage", flags)
	}
	if err != nil {
		return nil, &MissingFeatureError{MemfdExec, fmt.Sprintf("memfd_create: %v", err), remedies[MemfdExec]}
	}
	file := os.NewFile(uintptr(fd), "stage")
	// In pieces: a copy of the whole would be the largest thing that a start puts
	// on the heap, and make it collect.
	if _, err := io.CopyBuffer(struct{ io.Writer }{file}, body, make([]byte, 128<<10)); err != nil {
		file.Close()
		return nil, fmt.Errorf("stage image: %w", err)
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		file.Close()
		return nil, fmt.Errorf("stage image: seal: %w", err)
	}
	imageFile = file
	return file, nil
}
