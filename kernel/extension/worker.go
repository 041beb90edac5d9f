package extension

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/kernel/wire"
)

// worker is one process of extensions and the launcher's end of its wire.
type worker struct {
	proc *process
	conn *wire.Conn
	log  *log

	mu      sync.Mutex
	waiting map[int64]chan *wire.Message
	broken  error // what it did against the protocol
	onHost  func(*wire.Message)

	gone  chan struct{} // closed when nothing more will be read
	ended sync.Once
}

var errGone = errors.New("the extension worker has gone")

// startWorker starts a process; it is ready at once, and reads its first request
// when Python has come up. onHost takes its host calls and may not wait.
func startWorker(launch Launch, name string, onHost func(*worker, *wire.Message)) (*worker, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("extension worker: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "wire")
	defer theirs.Close()
	w := &worker{waiting: map[int64]chan *wire.Message{}, gone: make(chan struct{})}
	w.onHost = func(m *wire.Message) { onHost(w, m) }
	if w.conn, err = wire.NewConn(os.NewFile(uintptr(fds[0]), "wire")); err != nil {
		return nil, fmt.Errorf("extension worker: %w", err)
	}
	var output *os.File
	if w.log, output, err = newLog(launch.LogDir, name); err != nil {
		w.conn.Close()
		return nil, err
	}
	defer output.Close()
	if w.proc, err = startProcess(launch, name, theirs, output); err != nil {
		w.conn.Close()
		output.Close()
		w.log.close()
		return nil, fmt.Errorf("extension worker: python %q: %w", launch.Python, err)
	}
	go w.read()
	return w, nil
}

// read takes messages until the wire ends. What is not in the protocol ends the
// worker: an extension that writes to the wire's descriptor speaks for it no more.
func (w *worker) read() {
	defer close(w.gone)
	for {
		m, err := w.conn.ReadMessage()
		if err != nil {
			if errors.As(err, new(*wire.ProtocolError)) {
				w.fail(err)
			}
			return
		}
		if m.Op == wire.OpHost {
			w.onHost(m)
			continue
		}
		w.mu.Lock()
		to := w.waiting[m.ID]
		delete(w.waiting, m.ID)
		w.mu.Unlock()
		if to == nil {
			w.fail(&wire.ProtocolError{Rule: wire.RuleUnknownReply, Detail: fmt.Sprintf("id %d", m.ID)})
			return
		}
		to <- m
	}
}

func (w *worker) fail(err error) {
	w.mu.Lock()
	w.broken = err
	w.mu.Unlock()
	w.proc.kill()
}

// send writes a request with the fields that its op carries. numbered, which may be
// nil, is called with its number before the first byte goes out.
func (w *worker) send(op string, fields map[string]any, numbered func(id int64)) (chan *wire.Message, error) {
	reply := make(chan *wire.Message, 1)
	err := w.conn.Ask(func(id int64) any {
		w.mu.Lock()
		w.waiting[id] = reply
		w.mu.Unlock()
		if numbered != nil {
			numbered(id)
		}
		message := map[string]any{"id": id, "op": op}
		for name, value := range fields {
			message[name] = value
		}
		return message
	})
	if err != nil && !errors.As(err, new(*wire.ProtocolError)) {
		err = errGone
	}
	return reply, err
}

// request sends one and waits for its reply, for ctx, or for the worker's end.
func (w *worker) request(ctx context.Context, op string, fields map[string]any) (*wire.Message, error) {
	reply, err := w.send(op, fields, nil)
	if err != nil {
		return nil, err
	}
	select {
	case m := <-reply:
		return m, nil
	case <-w.gone:
		select {
		case m := <-reply:
			return m, nil
		default:
			return nil, errGone
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// load has the worker evaluate a file. What the file did wrong is in the message.
func (w *worker) load(ctx context.Context, name string, f File, limit time.Duration) (*wire.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return w.request(ctx, "load", loading(name, f))
}

// loading is what a request to load carries.
func loading(name string, f File) map[string]any {
	return map[string]any{"extension": name, "root": f.Root, "path": f.Path, "source": f.source}
}

// death says how the worker came to its end, with the end of its log.
func (w *worker) death() string {
	w.mu.Lock()
	broken := w.broken
	w.mu.Unlock()
	how := w.proc.death()
	if broken != nil {
		how = "it broke the protocol: " + broken.Error()
	}
	return fmt.Sprintf("the extension worker ended (%s): %s", how, w.log.last())
}

// end ends the process and gives back what the launcher holds for it. It returns
// when both are done, whoever called first.
func (w *worker) end() {
	w.ended.Do(func() {
		w.proc.end()
		w.conn.Close()
		<-w.gone
		w.log.close()
	})
}

// plain is an error of the worker that says nothing more than its text.
func plain(e *wire.WorkerError) string {
	if e.Type == "" || e.Type == "NotLoaded" || e.Type == "HostError" {
		return e.Message
	}
	return e.Type + ": " + e.Message
}
