package integration

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestCasesB: output and encoding.
func TestCasesB(t *testing.T) { runCases(t, casesB) }

var casesB = []bugCase{
	{id: "B1", title: "lone surrogate", cells: []cell{
		{code: `print("a\ud800b")`, any: true, check: func(t *testing.T, s *session, r reply) {
			if r.ename() != "UnicodeEncodeError" && r.Details.Stdout == "" {
				t.Errorf("neither an error nor the text with a replacement: %s", r)
			}
			if !utf8.Valid(r.raw) {
				t.Errorf("the reply is not UTF-8")
			}
		}},
		{code: `"\udcff"`, value: `'\udcff'`},
		{code: `"next"`, value: "'next'"},
	}},

	{id: "B3", title: "raw bytes on both levels", cells: []cell{{
		code: `
import os, sys
sys.stdout.buffer.write(b"\xff\xfe top\n"); sys.stdout.flush()
os.write(1, b"\x80 raw\n")
"end"`, value: "'end'", stdout: "\ufffd\ufffd top\n\ufffd raw\n"}}},

	{id: "B5", title: "endless printing", opts: []option{onTimeout("interrupt")}, do: func(t *testing.T, c bugCase) {
		s := open(t, c.opts...)
		s.ok("i = 0")
		before := residentKiB(t)
		r := s.runLimit("while True:\n    print('line', i); i += 1\n", 2*time.Second)
		if grown := residentKiB(t) - before; grown > 96<<10 {
			t.Errorf("the launcher grew by %d KiB", grown)
		}
		if r.ename() != "KernelTimeout" {
			t.Errorf("want KernelTimeout: %s", r)
		}
		if n := utf8.RuneCountInString(r.Details.Stdout); n > 20000 {
			t.Errorf("stdout has %d characters, above the cap", n)
		}
		contains(t, "stdout", r.Details.Stdout, "...[truncated ")
		s.shows("i > 0", "True")
	}},

	{id: "B5", title: "endless printing ends the kernel by default", do: func(t *testing.T, c bugCase) {
		s := open(t)
		r := s.runLimit("i = 0\nwhile True:\n    print('line', i); i += 1\n", 2*time.Second)
		if r.ename() != "KernelTimeout" {
			t.Errorf("want KernelTimeout: %s", r)
		}
		contains(t, "stdout", r.Details.Stdout, "...[truncated ")
		next := s.shows("'i' in globals()", "False")
		contains(t, "the next reply", next.text(), lostNote)
	}},

	{id: "B7", title: "a thread prints after its cell", cells: []cell{
		{code: `
import threading, time
def afterwards():
    time.sleep(1)
    print("late")
threading.Thread(target=afterwards).start()`, check: func(t *testing.T, s *session, r reply) {
			lacks(t, "stdout of the first cell", r.Details.Stdout, "late")
		}},
		{pause: 2 * time.Second, code: `"second"`, value: "'second'", check: func(t *testing.T, s *session, r reply) {
			lacks(t, "stdout of the second cell", r.Details.Stdout, "late")
			if !strings.Contains(string(r.raw), "late") {
				t.Errorf("the late line is nowhere, not even as background: %s", r)
			}
		}},
		{code: `"third"`, check: func(t *testing.T, s *session, r reply) {
			lacks(t, "the third reply", string(r.raw), "late")
		}},
	}},

	{id: "B9", title: "child output, in order", cells: []cell{{
		code: `
import os, subprocess
print("one")
os.system("echo two")
subprocess.run(["echo", "three"])
print("four")`, stdout: "one\ntwo\nthree\nfour\n"}}},

	{id: "B11", title: "stdout is a real file object", cells: []cell{{
		code: `
import builtins, subprocess, sys
subprocess.run(["echo", "x"], stdout=sys.stdout)
out = sys.stdout
(out.fileno() >= 0, out.isatty(), out.encoding.lower(), print is builtins.print)`,
		value: "(True, False, 'utf-8', True)", stdout: "x\n"}}},

	{id: "B13", title: "logging over several cells", cells: []cell{
		{code: `
import logging
logging.basicConfig(level=logging.INFO)
logging.info("first")`, stderr: "INFO:root:first"},
		{code: `logging.info("second")`, stderr: "INFO:root:second", check: func(t *testing.T, s *session, r reply) {
			lacks(t, "stderr", r.Details.Stderr, "closed file")
			lacks(t, "stderr", r.Details.Stderr, "first")
		}},
	}},

	{id: "B16", title: "launcher started with an empty environment", do: func(t *testing.T, c bugCase) {
		dir := newDir(t)
		code := `
import os, sys
open("naïve-文件.txt", "w").write("ü")
(open("naïve-文件.txt").read(), sys.getfilesystemencoding(), sys.stdout.encoding.lower())`
		out := command(t).dir(dir).env().run("run", "--json", "--mode", "enforce", "--session", dir, "--python", pythonBin(), "-c", code)
		r := decodeReply(t, []byte(out.line(t, 0)))
		if r.value() != "('ü', 'utf-8', 'utf-8')" {
			t.Errorf("value %s: %s", r.value(), r)
		}
	}},

	{id: "B18", title: "non-finite numbers", cells: []cell{{
		code: `{"a": float("nan"), "b": [float("inf")]}`, value: "{'a': nan, 'b': [inf]}",
		check: func(t *testing.T, s *session, r reply) {
			if !json.Valid(r.raw) {
				t.Errorf("the reply is not strict JSON: %s", r)
			}
		}},
		{code: `_AUDIT.append({"op": "note", "n": float("nan")}); 1`, value: "1", check: func(t *testing.T, s *session, r reply) {
			if len(r.auditWith("op", "note")) != 1 {
				t.Errorf("the entry with a NaN is gone: %s", r)
			}
		}},
	}},
}

// residentKiB is this process's resident memory after a collection.
func residentKiB(t *testing.T) int {
	t.Helper()
	for _, field := range strings.Split(statusField(os.Getpid(), "VmRSS"), " ") {
		if n, err := strconv.Atoi(field); err == nil {
			return n
		}
	}
	t.Fatal("no VmRSS in /proc/self/status")
	return 0
}
