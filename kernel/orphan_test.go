package kernel

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAWorkerEndsWithItsLauncher: also one without a jail that computes for ever, and reads
// nothing that could tell it.
func TestAWorkerEndsWithItsLauncher(t *testing.T) {
	const asked = "CELLBLOCK_TEST_ORPHAN"
	if dir := os.Getenv(asked); dir != "" {
		s, err := Open(Options{SessionDir: dir, PythonBin: "/usr/bin/python3", Tier: TierProcess})
		if err != nil {
			t.Fatal(err)
		}
		s.Call(t.Context(), Call{Code: "import os\nprint('worker', os.getpid(), flush=True)\nwhile True: pass", Output: func(_, text string) { os.Stdout.WriteString(text) }})
		return
	}
	launcher := exec.Command(os.Args[0], "-test.run=^TestAWorkerEndsWithItsLauncher$")
	launcher.Env = append(os.Environ(), asked+"="+t.TempDir())
	out, err := launcher.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	worker := 0
	for lines := bufio.NewScanner(out); worker == 0 && lines.Scan(); {
		if number, found := strings.CutPrefix(lines.Text(), "worker "); found {
			if worker, err = strconv.Atoi(number); err != nil {
				t.Fatal(err)
			}
		}
	}
	if worker == 0 {
		t.Fatal("the launcher ended without a worker")
	}
	defer func() { _ = syscall.Kill(worker, syscall.SIGKILL) }()
	if err := launcher.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = launcher.Wait()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(worker) + "/stat")
		if _, state, _ := strings.Cut(string(stat), ") "); err != nil || strings.HasPrefix(state, "Z") {
			return // ended, or waits to be reaped by whoever has it now
		}
		if time.Now().After(end) {
			t.Fatalf("worker %d goes on without its launcher", worker)
		}
	}
}
