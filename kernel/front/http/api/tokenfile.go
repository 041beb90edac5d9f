package api

import (
	"fmt"
	"os"
	"syscall"
)

// OpenTokens opens a file of tokens, the server's or a client's. It must be its owner's
// alone.
func OpenTokens(path string) (*os.File, error) {
	// A FIFO must not hold up whoever opens it.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	switch info, stated := f.Stat(); {
	case stated != nil:
		err = fmt.Errorf("token file: %w", stated)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("token file %s: is no regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		err = fmt.Errorf("token file %s: others may read or change it (mode %04o): chmod 600 it, and make new tokens", path, info.Mode().Perm())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
