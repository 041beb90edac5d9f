package kernel

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// hostFiles keeps small files of the host that each start reads, by path.
var hostFiles sync.Map // string → keptFile

type keptFile struct {
	id      fileID
	content []byte
}

// fileID tells one state of a file from another.
type fileID struct {
	dev, ino         uint64
	size             int64
	modified, change time.Duration // since 1970
}

// settled is how long a file must have been left alone for its state to be told by its
// times: Linux keeps them to the tick of its clock (4 to 10 ms), and file systems of the
// network to the second or two.
const settled = 3 * time.Second

// hostFile is the content of a file, read again when the file is another one, or was
// changed. It is not to be written to.
func hostFile(path string) ([]byte, error) {
	var stat syscall.Stat_t
	if err := syscall.Stat(path, &stat); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	id := fileID{stat.Dev, stat.Ino, stat.Size, time.Duration(stat.Mtim.Nano()), time.Duration(stat.Ctim.Nano())}
	if kept, ok := hostFiles.Load(path); ok && kept.(keptFile).id == id {
		return kept.(keptFile).content, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// One that was changed just now, or has its times in the future, may be changed again
	// without its times telling.
	if age := time.Duration(time.Now().UnixNano()) - max(id.modified, id.change); age > settled {
		hostFiles.Store(path, keptFile{id, content})
	} else {
		hostFiles.Delete(path)
	}
	return content, nil
}
