package integration

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cellblock/kernel"
)

// Processes that are stopped, by the host or by themselves: they answer nothing, and end
// nothing by themselves. SIGKILL ends them all the same, and each bound holds.

// stop sends SIGSTOP and waits until the process stands still.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("SIGSTOP to %d: %v", pid, err)
	}
	stopped(t, pid)
}

func stopped(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "process "+strconv.Itoa(pid)+" is stopped", hang, func() bool { return strings.HasPrefix(statusField(pid, "State"), "T") })
}

// waiting is Python that says that it runs, and goes on until it is ended.
const waiting = `
import os, time
open("up", "w").close()
while True: time.sleep(0.01)`

// begun runs a cell in the background, waits until it says that it runs, and returns
// where its reply will come.
func (s *session) begun(c kernel.Call) <-chan kernel.Result {
	s.t.Helper()
	os.Remove(s.path("up"))
	done := make(chan kernel.Result, 1)
	go func() { done <- s.runs.Call(context.Background(), c) }()
	eventually(s.t, "the cell runs", hang, func() bool { _, err := os.Stat(s.path("up")); return err == nil })
	return done
}

// ends waits for a reply and wants it to say this.
func ends(t *testing.T, done <-chan kernel.Result, name string) {
	t.Helper()
	select {
	case r := <-done:
		if r.Details.Error == nil || r.Details.Error.Name != name || !r.Details.StateLost {
			t.Errorf("want %s: %+v %+v", name, r.Details.Error, r.Details)
		}
	case <-time.After(hang):
		t.Fatalf("no reply; want %s", name)
	}
}

// goesOn wants the next cell to run in a fresh interpreter and to say so.
func (s *session) goesOn() {
	s.t.Helper()
	r := s.shows("6 * 7", "42")
	if !strings.HasPrefix(r.text(), lostNote) {
		s.t.Errorf("the loss of state is not told: %s", r)
	}
}

// stops are the ways in which a session's processes come to stand still while a cell
// runs.
var stops = []struct {
	name string
	code string // of the cell
	by   func(t *testing.T, s *session)
}{
	{name: "the worker, by the host", code: waiting, by: func(t *testing.T, s *session) { stop(t, s.kernel.Info().WorkerPID) }},
	{name: "the jail's first process, by the host", code: waiting, by: func(t *testing.T, s *session) {
		pid := s.kernel.Info().WorkerPID
		first, err := strconv.Atoi(statusField(pid, "PPid"))
		if err != nil {
			t.Fatal(err)
		}
		stop(t, first)
		stop(t, pid)
	}},
	{name: "the worker, by itself", code: `
import os, signal
open("up", "w").close()
os.kill(os.getpid(), signal.SIGSTOP)` + waiting, by: func(t *testing.T, s *session) { stopped(t, s.kernel.Info().WorkerPID) }},
	{name: "the worker, by a child, again and again", code: `
import os, signal, time
boss = os.getpid()
open("up", "w").close()
if not os.fork():
    while True: os.kill(boss, signal.SIGSTOP); time.sleep(0.001)` + waiting, by: func(t *testing.T, s *session) { stopped(t, s.kernel.Info().WorkerPID) }},
	{name: "the whole group, by itself", code: `
import os, signal, subprocess
child = subprocess.Popen(["sleep", "600"])
open("up", "w").close()
os.killpg(0, signal.SIGSTOP)` + waiting, by: func(t *testing.T, s *session) { stopped(t, s.kernel.Info().WorkerPID) }},
	{name: "a child that the cell waits for", code: `
import os, signal, subprocess
child = subprocess.Popen(["sleep", "600"])
child.send_signal(signal.SIGSTOP)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
open("up", "w").close()
child.wait()`, by: func(*testing.T, *session) {}},
}

// TestStoppedProcesses: whoever is stopped, the time limit ends the cell, an interrupt
// ends it within its bound, a cancelled call and the end of a session do so at once, and
// the next cell runs.
func TestStoppedProcesses(t *testing.T) {
	for _, c := range stops {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, on := range []string{"kill", "interrupt"} {
				s := open(t, onTimeout(on))
				done := s.begun(kernel.Call{Code: c.code, Timeout: 2 * time.Second})
				c.by(t, s)
				ends(t, done, "KernelTimeout")
				s.goesOn()
			}
			s := open(t)
			done := s.begun(kernel.Call{Code: c.code})
			c.by(t, s)
			if !s.kernel.Interrupt() {
				t.Error("the interrupt says that nothing ran")
			}
			ends(t, done, "KernelKilled")
			s.goesOn()

			done = s.begun(kernel.Call{Code: c.code})
			c.by(t, s)
			s.kernel.Abort()
			ends(t, done, "KernelKilled")
			s.goesOn()

			done = s.begun(kernel.Call{Code: c.code})
			c.by(t, s)
			closed := make(chan error, 1)
			go func() { closed <- s.kernel.Close() }()
			ends(t, done, "KernelKilled")
			select {
			case err := <-closed:
				if err != nil {
					t.Errorf("close: %v", err)
				}
			case <-time.After(hang):
				t.Fatal("the session does not end")
			}
		})
	}
}

// TestAStoppedCellGoesOn: one that is continued in time has lost nothing.
func TestAStoppedCellGoesOn(t *testing.T) {
	s := open(t, onTimeout("interrupt"))
	done := s.begun(kernel.Call{Code: `
import os, time
open("up", "w").close()
while not os.path.exists("go"): time.sleep(0.01)
"whole"`})
	pid := s.kernel.Info().WorkerPID
	stop(t, pid)
	write(t, s.path("go"), "")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.IsError || r.Details.Value == nil || *r.Details.Value != "'whole'" {
		t.Errorf("%+v", r)
	}
}

// TestStoppedBetweenCells: a worker that is stopped while nothing runs is ended by the
// next cell's time limit, and by the end of the session at once.
func TestStoppedBetweenCells(t *testing.T) {
	s := open(t)
	s.ok("kept = 1")
	stop(t, s.kernel.Info().WorkerPID)
	if r := s.runLimit("kept", time.Second); r.ename() != "KernelTimeout" {
		t.Errorf("%s", r)
	}
	s.goesOn()
	stop(t, s.kernel.Info().WorkerPID)
	if err := s.kernel.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestStoppedExtension: calls of an extension whose process is stopped end with the
// cell's time limit, a reset starts another one, and the session ends at once.
func TestStoppedExtension(t *testing.T) {
	e := newExtensible(t, map[string]string{"home/sums.py": sums})
	s := open(t, e.options("sums.*"))
	for range 2 {
		pid, err := strconv.Atoi(s.ok("sums.where()[0]").value())
		if err != nil {
			t.Fatal(err)
		}
		stop(t, pid)
		if r := s.runLimit("sums.add(a=1)", time.Second); r.ename() != "KernelTimeout" {
			t.Errorf("%s", r)
		}
		s.goesOn()
		if r := s.runLimit("sums.add(a=1)", time.Second); !r.IsError {
			t.Errorf("a call of what is stopped: %s", r)
		}
		// It is given up when its handler has not unwound for two seconds.
		eventually(t, "a reset starts another", hang, func() bool { s.reset(); return s.run("sums.add(a=1)").value() == "2" })
	}
	pid, err := strconv.Atoi(s.ok("sums.where()[0]").value())
	if err != nil {
		t.Fatal(err)
	}
	stop(t, pid)
	if err := s.kernel.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	eventually(t, "the stopped process is gone", hang, func() bool { return statusField(pid, "State") == "" })
}
