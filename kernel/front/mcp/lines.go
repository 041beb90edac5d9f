package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// withBatches are the versions of the protocol that have them; what else a client asks for
// becomes a later one.
var withBatches = []string{"2024-11-05", "2025-03-26"}

// Lines is a transport of one message a line. A line that is no message is answered with
// a JSON-RPC error and passed over: a client's stray line must not cost the session its
// state. Neither stream is closed.
func Lines(in io.Reader, out io.Writer) sdk.Transport {
	l := &stream{in: bufio.NewReader(in), out: out}
	return &sdk.IOTransport{Reader: io.NopCloser(l), Writer: l}
}

// stream reads what is in order of one stream, and writes to another.
type stream struct {
	in   *bufio.Reader
	next []byte // of the line that is being read
	many bool   // the client has asked for a version with batches

	mu  sync.Mutex // a line is written whole
	out io.Writer
}

func (l *stream) Read(p []byte) (int, error) {
	for len(l.next) == 0 {
		line, long, err := l.line()
		switch {
		case long:
			err = errors.Join(err, l.refuse(jsonrpc.CodeInvalidRequest, fmt.Sprintf("a line of more than %d bytes", sdk.DefaultMaxLineLength-1)))
		case len(bytes.TrimSpace(line)) > 0:
			if code, why := l.wrong(line); code != 0 {
				err = errors.Join(err, l.refuse(code, why))
			} else {
				l.next = line
			}
		}
		if err != nil && len(l.next) == 0 {
			return 0, err
		}
	}
	n := copy(p, l.next)
	l.next = l.next[n:]
	return n, nil
}

// line reads one, with its end. Of one that is too long nothing is kept.
func (l *stream) line() (line []byte, long bool, err error) {
	for {
		part, err := l.in.ReadSlice('\n')
		if long = long || len(line)+len(part) >= sdk.DefaultMaxLineLength; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) && len(line) > 0 {
				err, line = nil, append(line, '\n') // the next read says it again
			}
			return line, long, err
		}
	}
}

// wrong says what keeps a line from being a message, or 0.
func (l *stream) wrong(line []byte) (code int64, why string) {
	if !json.Valid(line) {
		return jsonrpc.CodeParseError, "the line is no JSON"
	}
	all := []json.RawMessage{line}
	if bytes.TrimSpace(line)[0] == '[' {
		if err := json.Unmarshal(line, &all); err != nil || len(all) == 0 || !l.many {
			return jsonrpc.CodeInvalidRequest, "a batch that is empty, or in a version of the protocol that has none"
		}
	}
	ids := map[jsonrpc.ID]bool{}
	for _, one := range all {
		m, err := jsonrpc.DecodeMessage(one)
		if err != nil {
			return jsonrpc.CodeInvalidRequest, err.Error()
		}
		r, ok := m.(*jsonrpc.Request)
		if !ok {
			continue
		}
		if r.IsCall() && ids[r.ID] {
			return jsonrpc.CodeInvalidRequest, "a batch with two requests of one id"
		}
		ids[r.ID] = true
		var asked struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		if r.Method == "initialize" && json.Unmarshal(r.Params, &asked) == nil {
			l.many = slices.Contains(withBatches, asked.ProtocolVersion)
		}
	}
	return 0, ""
}

// refuse answers what has no id that could be known.
func (l *stream) refuse(code int64, why string) error {
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": why}})
	if err != nil {
		return err
	}
	_, err = l.Write(append(text, '\n'))
	return err
}

func (l *stream) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

// Close ends nothing: the streams are the process's.
func (l *stream) Close() error { return nil }
