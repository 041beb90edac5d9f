package wire

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestParseRefusesWhatIsNotInTheProtocol(t *testing.T) {
	for _, c := range []struct {
		line string
		rule Rule
	}{
		{`{"id":1}`, RuleMissingField},
		{`{"value":1}`, RuleMissingField},
		{`{"id":0,"value":1}`, RuleMissingField},
		{`{"id":-1,"value":1}`, RuleWrongType},
		{`{"id":1.5,"value":1}`, RuleWrongType},
		{`{"id":"1","value":1}`, RuleWrongType},
		{`{"id":1,"value":1,"error":{}}`, RuleValueAndError},
		{`{"id":1,"value":1,"x":2}`, RuleUnknownField},
		{`{"id":1,"id":2,"value":1}`, RuleDuplicateField},
		{`{"id":1,"op":"exec"}`, RuleUnknownOp},
		{`{"id":1,"op":"host","name":"x"}`, RuleMissingField},
		{`{"id":1,"op":"host","name":"x","arguments":[]}`, RuleWrongType},
		{`{"id":1,"op":"host","name":"x","arguments":{},"value":1}`, RuleUnknownField},
		{`{"id":1,"value":NaN}`, RuleNotJSON},
		{`{"id":1,"value":"\ud800"}`, RuleNotText},
		{"{\"id\":1,\"value\":\"\xff\"}", RuleNotText},
		{`{"id":1,"value":1} {}`, RuleNotJSON},
		{`[]`, RuleWrongType},
		{``, RuleNotJSON},
		{`{"id":1,"value":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`, RuleTooDeep},
		{`{"id":1,"value":-` + strings.Repeat("1", 4300) + `}`, RuleTooLong},
		{`{"id":1,"value":{"` + strings.Repeat("k", 4097) + `":1}}`, RuleTooLong},
	} {
		_, err := Parse([]byte(c.line))
		var broke *ProtocolError
		if !errors.As(err, &broke) || broke.Rule != c.rule {
			t.Errorf("%.60s: %v, want %s", c.line, err, c.rule)
		}
	}
}

func TestParseCell(t *testing.T) {
	c, err := ParseCell([]byte(`{"status":"error","error":{"ename":"E","evalue":"v","traceback":"t"},"forked":true,"observed":[{"op":"open","path":"/x","count":3,"cell":1,"line":2}],"audit":[{"a":1},2],"durationMs":0.5}`))
	if err != nil || c.Error.Name != "E" || !c.Forked || c.Observed[0].Count != 3 || string(c.Audit[0]) != `{"a":1}` {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, bad := range []string{`{"status":"ok","error":{"ename":"E"}}`, `{"status":"error"}`, `{"status":"fine"}`, `{"status":"ok","stdout":"x"}`, `null`} {
		if _, err := ParseCell([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}

func pair(t *testing.T) (*Conn, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConn(os.NewFile(uintptr(fds[0]), "launcher"))
	if err != nil {
		t.Fatal(err)
	}
	worker := os.NewFile(uintptr(fds[1]), "worker")
	t.Cleanup(func() { c.Close(); worker.Close() })
	return c, worker
}

func TestConnReadsLinesHoweverTheyAreCut(t *testing.T) {
	c, worker := pair(t)
	big := strings.Repeat("x", 1<<20)
	go func() {
		for _, part := range []string{`{"id":1,`, "\"value\":1}\n{\"id\":2,\"value\":2}\n", `{"id":3,"value":"` + big + "\"}\n", `{"id":4`} {
			worker.WriteString(part)
		}
		worker.Close()
	}()
	for want := int64(1); want <= 3; want++ {
		m, err := c.ReadMessage()
		if err != nil || m.ID != want {
			t.Fatalf("%v, %v, want id %d", m, err, want)
		}
		if want == 3 && len(m.Value) != len(big)+2 {
			t.Fatalf("%d bytes", len(m.Value))
		}
	}
	var broke *ProtocolError
	if _, err := c.ReadMessage(); !errors.As(err, &broke) || broke.Rule != RuleTruncatedLine {
		t.Fatal(err)
	}
}

func TestConnRefusesAnEndlessLine(t *testing.T) {
	c, worker := pair(t)
	ended := make(chan struct{}) // a plain write to the closed wire raises a signal, which is no other test's
	go func() {
		defer close(ended)
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for {
			if _, err := worker.Write(chunk); err != nil {
				return
			}
		}
	}()
	var broke *ProtocolError
	if _, err := c.ReadMessage(); !errors.As(err, &broke) || broke.Rule != RuleLineTooLong {
		t.Fatal(err)
	}
	c.Close()
	<-ended
}

func TestProtocolDocumentNamesEveryRequestAndBound(t *testing.T) {
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range Ops() {
		if !bytes.Contains(text, []byte("| `"+string(op)+"` |")) {
			t.Errorf("PROTOCOL.md has no row for %s", op)
		}
	}
	for _, bound := range []string{"67108864", "16777216", "| nesting of a message from the worker | 64 |"} {
		if !bytes.Contains(text, []byte(bound)) {
			t.Errorf("PROTOCOL.md does not say %s", bound)
		}
	}
	if MaxToWorker != 67108864 || MaxFromWorker != 16777216 || MaxDepth != 64 {
		t.Error("the bounds have changed: change PROTOCOL.md with them")
	}
	if !bytes.Contains(text, []byte("| answers that a worker has not read | 1024;")) || MaxUnread != 1024 {
		t.Error("PROTOCOL.md and the bound on unread answers differ")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"id":1,"value":{"status":"ok","value":"2","durationMs":0.1}}`))
	f.Add([]byte(`{"id":1,"value":{"status":"ok","definitions":{"kept":[{"cell":1,"start":0,"end":5,"kind":"import","names":["a"]}],"others":["b"]}}}`))
	f.Add([]byte(`{"id":1,"op":"host","name":"input","arguments":{"prompt":""}}`))
	f.Add([]byte(`{"id":1,"error":{"type":"E","message":"\u00e9"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := Parse(line)
		if err != nil {
			return
		}
		if m.ID <= 0 {
			t.Fatalf("id %d", m.ID)
		}
		_, _ = ParseCell(m.Value)
	})
}

// Writing to a worker that has ended is an error, and no signal: a command takes
// SIGPIPE as the word that nobody reads its output.
func TestWritingToADeadWorkerRaisesNoSignal(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := NewConn(os.NewFile(uintptr(fds[0]), "wire"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pipes := make(chan os.Signal, 8)
	signal.Notify(pipes, syscall.SIGPIPE)
	defer signal.Stop(pipes)
	unix.Close(fds[1])
	if err := conn.Request(Request{Op: OpClose}, nil, nil); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%v, want EPIPE", err)
	}
	// The control: a plain write to such a socket does raise it.
	control, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(control[1])
	_, _ = unix.Write(control[0], []byte("x"))
	unix.Close(control[0])
	<-pipes
	select {
	case <-pipes:
		t.Error("the wire raised SIGPIPE")
	default:
	}
}

// TestMain wants no reader or writer left behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAReplyWaitsForItsReader, for as long as nothing waits behind it; what comes
// afterwards has its whole time again.
func TestAReplyWaitsForItsReader(t *testing.T) {
	c, worker := pair(t)
	big := Answer{ID: 1, Value: []byte(`"` + strings.Repeat("x", 4<<20) + `"`)}
	written := make(chan error, 1)
	go func() { written <- c.Reply(big) }()
	// Longer than a request may wait.
	time.Sleep(WriteTime + 100*time.Millisecond)
	lines := bufio.NewReader(worker)
	if line, err := lines.ReadBytes('\n'); err != nil || len(line) < 4<<20 {
		t.Fatalf("%d bytes, %v", len(line), err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.Request(Request{Op: OpInterrupt}, nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := lines.ReadBytes('\n'); err != nil {
			t.Fatal(err)
		}
	}

	// A request behind a reply that nobody reads ends the wire, and both.
	go func() { written <- c.Reply(big) }()
	if _, err := lines.Peek(1); err != nil { // it is being written
		t.Fatal(err)
	}
	if err := c.Request(Request{Op: OpInterrupt}, nil, nil); err == nil {
		t.Error("the request was written")
	}
	if err := <-written; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}
