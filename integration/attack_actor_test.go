package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cellblock/policy/audit"
)

// attackActors are who makes each attempt on files: whatever the interpreter's main
// thread is kept from, its other threads, its forks and programs that it starts are kept
// from as well. The value is the function of actorTools that has it made.
var attackActors = []struct{ name, by string }{
	{"the main thread", "here"}, {"another thread", "by_thread"}, {"a fork", "by_fork"}, {"a program", "by_program"},
}

// actorTools run the code of an attack, which leaves its verdict, by each of them. TOOLS
// is what the code may call, in the program too.
const actorTools = `
import json, subprocess, sys, threading
def here(code):
    names = dict(globals())
    exec(code, names)
    return names["verdict"]
def by_thread(code):
    said = []
    th = threading.Thread(target=lambda: said.append(here(code))); th.start(); th.join()
    return said[0]
def by_fork(code):
    come, go = os.pipe()
    child = os.fork()
    if child == 0:
        try: os.write(go, here(code).encode())
        finally: os._exit(0)
    os.close(go)
    with open(come) as answer: said = answer.read()
    os.waitpid(child, 0)
    return said
`

// actorProgram starts the program that makes attempts until the session ends.
const actorProgram = `
program = subprocess.Popen([sys.executable, "-I", "-S", "-c", TOOLS + '''
for line in sys.stdin: print(json.dumps(here(json.loads(line))), flush=True)
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def by_program(code):
    program.stdin.write(json.dumps(code) + "\n"); program.stdin.flush()
    return json.loads(program.stdout.readline())
`

// actorsOn are the tools of attacks on a directory, for every actor.
func actorsOn(dir string, tries int) string {
	tools := attackOn(dir, tries) + actorTools
	return tools + "\nTOOLS = " + literal(tools) + actorProgram
}

// literal is a text as Python writes it, of which JSON's strings are a part.
func literal(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always marshals
	}
	return string(quoted)
}

// by is the code that has an actor make an attempt.
func by(function, code string) string { return fmt.Sprintf("%s(%s)", function, literal(code)) }

// TestAttacksOnFilesByEveryActor: each attempt on files is refused under enforce to
// whoever makes it, changes nothing outside, and is one record: one for each name that
// it was after, however often it tried.
func TestAttacksOnFilesByEveryActor(t *testing.T) {
	rows := fileAttacks()
	log := newDirIn(t, "/var/tmp") + "/audit/s.jsonl"
	dir, state := outside(t)
	before := state()
	s := open(t, at(newDirIn(t, "/var/tmp")), audited(log))
	s.ok(actorsOn(dir, 200))
	cell, made := 1, map[int]string{} // the number of a cell: which attempt it makes
	want := map[int]int{}
	for _, a := range rows {
		for _, actor := range attackActors {
			what := a.name + ", by " + actor.name
			r := s.run(by(actor.by, a.code))
			if got := strings.Trim(r.value(), "'"); !slices.Contains(a.refused, got) {
				t.Errorf("%s: %q, want one of %v: %s", what, got, a.refused, r)
			}
			if now := state(); now != before {
				t.Errorf("%s: what lies outside changed from\n%sto\n%s", what, before, now)
				before = now
			}
			cell++
			made[cell], want[cell] = what, cmp.Or(a.names, 1)
			if want[cell] == keptApart {
				want[cell] = 0
			}
			if strings.Trim(r.value(), "'") == "ENOSYS" {
				want[cell] = 0 // a call that the profile has libc do without
			}
		}
	}
	s.alive()
	if err := s.kernel.Close(); err != nil {
		t.Fatal(err)
	}
	found := deniedByCell(t, log)
	for cell, what := range made {
		if got := found[cell]; len(got) != want[cell] {
			t.Errorf("%s: %d records, want %d: %q", what, len(got), want[cell], got)
		}
	}
}

// deniedByCell are the operations that a log tells of as denied, by the cell that was running.
// A record's own cell is that of its line, which may be one before.
func deniedByCell(t *testing.T, log string) map[int][]string {
	t.Helper()
	found, running := map[int][]string{}, 0
	for _, r := range readLog(t, log) {
		if r.Op == audit.OpCellStart {
			running = r.Cell
		}
		if r.Denial() {
			found[running] = append(found[running], r.Op+" "+r.Target)
		}
	}
	return found
}
