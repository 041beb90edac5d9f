package extension

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxLog  = 4 << 20 // bytes of a log's file; what comes after them is counted
	maxTail = 4 << 10 // bytes kept for error messages
)

// log takes what a worker prints: the first maxLog bytes go to a file, and the last
// maxTail are kept in memory. A worker that floods it is not held up.
type log struct {
	read *os.File
	done chan struct{}

	mu      sync.Mutex
	file    *os.File // nil for none
	written int64
	cut     int64
	tail    []byte
}

var logs atomic.Int64

// unread is how long the log of a worker that has ended is kept.
const unread = 7 * 24 * time.Hour

// forget removes logs to which nothing was written for long.
func forget(dir string) {
	found, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range found {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".log") && time.Since(info.ModTime()) > unread {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// plainName keeps of a session's name what may stand in a file's.
func plainName(name string) string {
	kept := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	return kept[:min(len(kept), 64)]
}

// newLog opens a log and the end to which the worker writes, which is the caller's
// to close. dir may be empty.
func newLog(dir, name string) (*log, *os.File, error) {
	l := &log{done: make(chan struct{})}
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, nil, fmt.Errorf("extension log: %w", err)
		}
		forget(dir)
		path := filepath.Join(dir, fmt.Sprintf("%s-%d-%d.log", plainName(name), os.Getpid(), logs.Add(1)))
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, nil, fmt.Errorf("extension log: %w", err)
		}
		l.file = file
	}
	read, write, err := os.Pipe()
	if err != nil {
		if l.file != nil {
			l.file.Close()
		}
		return nil, nil, fmt.Errorf("extension log: %w", err)
	}
	l.read = read
	go l.drain()
	return l, write, nil
}

func (l *log) drain() {
	defer close(l.done)
	_, _ = io.Copy(writer{l}, l.read) // ends when every writer has, or with close
}

type writer struct{ *log }

func (w writer) Write(p []byte) (int, error) {
	l := w.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p...)
	if over := len(l.tail) - maxTail; over > 0 {
		l.tail = append(l.tail[:0], l.tail[over:]...)
	}
	keep := p[:min(int64(len(p)), maxLog-l.written)]
	if l.file != nil && len(keep) > 0 {
		n, _ := l.file.Write(keep) // a full disk costs the log, never the worker
		l.written += int64(n)
	}
	l.cut += int64(len(p) - len(keep))
	return len(p), nil
}

// last is the end of what was printed, for an error message.
func (l *log) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(l.tail), "\uFFFD"))
	if text == "" {
		return "it wrote nothing"
	}
	return text
}

// close ends the log; processes that escaped with its other end get EPIPE.
func (l *log) close() {
	l.read.Close()
	<-l.done
	if l.file == nil {
		return
	}
	if l.cut > 0 {
		fmt.Fprintf(l.file, "\n[%d bytes were left out]\n", l.cut)
	}
	l.file.Close()
	if l.written == 0 {
		os.Remove(l.file.Name()) // there is nothing to read in it
	}
}
