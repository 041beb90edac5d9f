package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cellblock/policy/audit"
)

// ledger notes how often each text was asked for: a call that was carried out twice, or
// for another session, shows.
const ledger = `
DONE = {}
def echo(text: str):
    DONE[text] = DONE.get(text, 0) + 1
    return text
def done(): return [[text, DONE[text]] for text in DONE]
cellblock.register(cellblock.Extension(name=__file__.rpartition("/")[2][:-3], tools=[echo, done]))
`

// crowd calls in each way that cells have, and keeps what came of each call: its own
// text, or why there is none.
const crowd = `
import asyncio, random
from concurrent.futures import ThreadPoolExecutor
CAME = {}
def tool(i): return one if i % 2 else two
def keep(i, what):
    assert i not in CAME, (i, CAME[i], what)
    CAME[i] = what
def call(i):
    try:
        got = tool(i).echo(text="%s-%d" % (NAME, i))
    except BaseException as e:
        keep(i, type(e).__name__)
        raise
    keep(i, got)
async def acall(i):
    try:
        got = await tool(i).echo(text="%s-%d" % (NAME, i))
    except BaseException as e:
        keep(i, type(e).__name__)
        raise
    keep(i, got)
def inorder(numbers):
    for i in numbers: call(i)
def threads(numbers):
    with ThreadPoolExecutor(4) as pool: list(pool.map(call, numbers))
async def together(numbers):
    await asyncio.gather(*map(acall, numbers))
async def given_up(numbers):
    tasks = [asyncio.ensure_future(acall(i)) for i in numbers]
    for t in random.sample(tasks, len(tasks) // 3):
        await asyncio.sleep(random.random() / 500)
        t.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
`

// TestSessionsWithExtensionsAtOnce: each call is carried out once at most and has one
// answer, its own, whatever is interrupted or given up meanwhile, and the record has one
// return for each. CELLBLOCK_SOAK=1 runs ten sessions of a thousand calls.
func TestSessionsWithExtensionsAtOnce(t *testing.T) {
	sessions, calls := 3, 80
	if os.Getenv("CELLBLOCK_SOAK") != "" {
		sessions, calls = 10, 1000
	}
	e := newExtensible(t, map[string]string{"home/one.py": ledger, "home/two.py": ledger})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	logs := newDirIn(t, "/var/tmp")
	var wait sync.WaitGroup
	for n := range sessions {
		own, name := e, fmt.Sprintf("session%d", n)
		own.dir = filepath.Join(e.dir, fmt.Sprint(n))
		if err := os.Mkdir(own.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		log := filepath.Join(logs, name+".jsonl")
		s := open(t, own.options("one.*", "two.*"), audited(log))
		s.ok(fmt.Sprintf("NAME = %q\n", name) + crowd)
		wait.Go(func() {
			inCrowd(t, s, rand.New(rand.NewPCG(seed, uint64(n))), calls)
			s.shows(`[(i, c) for i, c in CAME.items() if c != "%s-%d" % (NAME, i) and c not in ("KeyboardInterrupt", "CancelledError", "HostError", "ScopeClosed")]`, "[]")
			s.shows(`[d for t in (one, two) for d in t.done() if d[1] != 1 or not d[0].startswith(NAME + "-")]`, "[]")
			s.shows(`{c for c in CAME.values() if c.startswith(NAME)} - {d[0] for t in (one, two) for d in t.done()}`, "set()")
			came := s.count(`sum(c.startswith(NAME) for c in CAME.values())`)
			if t.Logf("%s: %d calls, %d came through", name, s.count("len(CAME)"), came); came < calls/5 {
				t.Errorf("%s: hardly a call came through", name)
			}
			if err := s.kernel.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			eachReturnsOnce(t, log)
		})
	}
	wait.Wait()
}

// inCrowd runs cells of several calls each, in ways by turns, some of which are
// interrupted at any moment, until so many calls were begun.
func inCrowd(t *testing.T, s *session, r *rand.Rand, calls int) {
	ways := []string{"inorder(%s)", "await together(%s)", "threads(%s)", "await given_up(%s)"}
	const batch = 20
	for cell := 0; s.count("len(CAME)") < calls; cell++ {
		if cell > calls {
			t.Errorf("%d cells of %d calls each began less than %d", cell, batch, calls)
			return
		}
		code := fmt.Sprintf(ways[cell%len(ways)], fmt.Sprintf("range(%d, %d)", cell*batch, (cell+1)*batch))
		stop := make(chan struct{})
		var ended sync.WaitGroup
		if r.IntN(3) == 0 {
			after := time.Duration(r.IntN(30)) * time.Millisecond
			ended.Go(func() {
				select {
				case <-stop:
				case <-time.After(after):
					s.kernel.Interrupt()
				}
			})
		}
		got := s.run(code)
		close(stop)
		ended.Wait()
		if got.IsError && got.ename() != "KeyboardInterrupt" && !strings.Contains(got.text(), "cancelled") {
			t.Errorf("%s: %s", code, got)
		}
	}
}

// count is the whole number that an expression in the session yields.
func (s *session) count(expression string) int {
	s.t.Helper()
	n, err := strconv.Atoi(s.ok(expression).text())
	if err != nil {
		s.t.Fatalf("%s: %v", expression, err)
	}
	return n
}

// eachReturnsOnce reads a session's record: each host call that was let through has one
// return, after it.
func eachReturnsOnce(t *testing.T, log string) {
	open := map[string]bool{}
	var calls int
	for _, r := range readLog(t, log) {
		id, _ := r.Facts[audit.FactCall].(string)
		switch {
		case r.Op == audit.OpHostCall && r.Decision == audit.Allowed:
			if _, again := open[id]; again || id == "" {
				t.Errorf("%s: host call %q is recorded again", log, id)
			}
			open[id] = true
			calls++
		case r.Op == audit.OpHostReturn:
			if !open[id] {
				t.Errorf("%s: record %d is a return of call %q, which was not under way", log, r.Seq, id)
			}
			open[id] = false
		}
	}
	for id, is := range open {
		if is {
			t.Errorf("%s: call %q has no return", log, id)
		}
	}
	if calls == 0 {
		t.Errorf("%s tells of no host call", log)
	}
}
