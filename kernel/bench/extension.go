package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"cellblock/kernel"
	"cellblock/policy"
)

// trips is how many round trips one measurement takes.
const trips = 200

// echo is the least that an extension can do.
const echo = `import cellblock
def back(text: str): return text
cellblock.register(cellblock.Extension(name="echo", tools=[back]))
`

// hops is the least that does the same: a line of JSON that goes by a relay to another
// interpreter, and back.
type hops struct {
	near, far *loop
	relay     net.Listener
}

// trip asks as a cell does, echo answers as an extension does.
const (
	hopsOpen = `import json, socket, time
def opened(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    return s, s.makefile("rb")
def trip(n):
    begin = time.perf_counter()
    for i in range(n):
        wire.sendall(json.dumps({"id": i, "text": "x"}).encode() + b"\n")
        json.loads(lines.readline())
    return (time.perf_counter() - begin) / n
def echo():
    for line in lines:
        wire.sendall(json.dumps(json.loads(line)).encode() + b"\n")
`
	hopsJoin = `wire, lines = opened(%q)`
)

func (b *bench) startHops(ctx context.Context) (*hops, error) {
	listener, err := net.Listen("unix", filepath.Join(b.state, "hops"))
	if err != nil {
		return nil, err
	}
	h := &hops{relay: listener}
	var conns []net.Conn
	for _, end := range []**loop{&h.near, &h.far} {
		if *end, err = startLoop(b.python); err == nil {
			_, err = (*end).run(ctx, hopsOpen)
		}
		if err == nil {
			_, err = (*end).run(ctx, fmt.Sprintf(hopsJoin, listener.Addr().String()))
		}
		var conn net.Conn
		if err == nil {
			conn, err = listener.Accept()
		}
		if err != nil {
			h.end()
			return nil, err
		}
		conns = append(conns, conn)
	}
	go pass(conns[0], conns[1])
	go pass(conns[1], conns[0])
	go func() { _, _ = h.far.run(context.Background(), "echo()") }() // until its wire ends
	return h, nil
}

// pass hands lines on.
func pass(from, to net.Conn) {
	defer to.Close()
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		if _, err := to.Write(line); err != nil {
			return
		}
	}
}

func (h *hops) run(ctx context.Context, code string) (string, error) { return h.near.run(ctx, code) }

func (h *hops) pids() ([]int, error) { return h.near.pids() }

func (h *hops) end() {
	h.relay.Close()
	for _, l := range []*loop{h.near, h.far} {
		if l != nil {
			l.end()
		}
	}
}

// hostCall measures a host call from a cell through an extension and back.
func (b *bench) hostCall(ctx context.Context) (*Row, error) {
	r := &Row{Name: "host-call", Work: "a host call from a cell to an extension and back, all on one processor", Unit: "µs"}
	dir := filepath.Join(b.state, "echo")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "echo.py"), []byte(echo), 0o644); err != nil {
		return nil, err
	}
	const way, bare = "cellblock, enforce", "two hops, no jail"
	return r, pinned(func() error {
		ways := []entry{
			b.lasting(bare, func() (runner, error) { return b.startHops(ctx) }, timed(fmt.Sprintf("took = trip(%d)", trips), time.Microsecond)),
			b.lasting(way, func() (runner, error) {
				return b.open(ctx, policy.Enforce, func(o *kernel.Options) {
					doc, err := kernel.BuiltInPolicy("default")
					if err != nil {
						panic(err) // it is embedded
					}
					doc.Tools.Rules = append(doc.Tools.Rules, policy.ToolRule{ID: "echo", Tool: "echo.back", Effect: policy.Allow, Reason: "it is measured"})
					o.Policy, o.Extensions = &doc, []string{dir}
				})
			}, timed(fmt.Sprintf("import time\nbegin = time.perf_counter()\nfor i in range(%d): echo.back(text='x')\ntook = (time.perf_counter() - begin) / %d", trips, trips), time.Microsecond)),
		}
		var err error
		r.Ways, err = turns(ctx, b.warm(), b.Rounds, ways)
		r.ratio(way, bare, 1.5, false)
		return err
	})
}
