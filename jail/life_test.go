package jail

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain also is the launcher that gets killed: it starts a jail and waits.
func TestMain(m *testing.M) {
	if os.Getenv("JAIL_TEST_LAUNCHER") != "" {
		launcherMain()
	}
	// The one goroutine that lives as long as the launcher is the spawner's.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("cellblock/jail/spawner.spawning"))
}

const daemon = `import os, sys, time
# A daemon that hides: two forks, a session of its own, every signal blocked.
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    import signal
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    time.sleep(1000)
print("up", flush=True); time.sleep(1000)`

func launcherMain() {
	spec := testSpecIn(os.Getenv("JAIL_TEST_LAUNCHER"), TreeWritable, python, "-I", "-c", daemon)
	p, err := Compile(spec, Probe())
	if err != nil {
		panic(err)
	}
	process, err := Start(context.Background(), p, StartOptions{Stdout: os.Stdout})
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString("stage " + strconv.Itoa(process.StagePid()) + " worker " + strconv.Itoa(process.Pid()) + "\n")
	os.Stdout.WriteString("cgroups " + strings.Join(process.Report().Cgroups, " ") + "\n")
	select {}
}

func TestKilledLauncherLeavesNoProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		launcher := exec.Command(self)
		launcher.Env = append(os.Environ(), "JAIL_TEST_LAUNCHER="+t.TempDir())
		out, err := launcher.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		launcher.Stderr = os.Stderr
		if err := launcher.Start(); err != nil {
			t.Fatal(err)
		}
		var stage, worker int
		var cgroups []string
		lines := bufio.NewScanner(out)
		for up := false; (!up || cgroups == nil) && lines.Scan(); {
			f := strings.Fields(lines.Text())
			switch f[0] {
			case "up":
				up = true
			case "stage":
				stage, _ = strconv.Atoi(f[1])
				worker, _ = strconv.Atoi(f[3])
			case "cgroups":
				cgroups = append([]string{}, f[1:]...)
			}
		}
		if stage == 0 || worker == 0 {
			t.Fatal("the launcher did not start its jail")
		}
		if err := launcher.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = launcher.Wait()
		deadline := time.Now().Add(5 * time.Second)
		for alive(stage) || alive(worker) || populated(cgroups) {
			if time.Now().After(deadline) {
				t.Fatalf("after the launcher's death: stage %v, worker %v, cgroups populated %v", alive(stage), alive(worker), populated(cgroups))
			}
			time.Sleep(5 * time.Millisecond)
		}
		if _, err := Sweep(); err != nil {
			t.Error(err)
		}
		for _, dir := range cgroups {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("cgroup %s is left after the sweep", dir)
			}
		}
	}
}

func alive(pid int) bool {
	body, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(body), ") Z ")
}

func populated(cgroups []string) bool {
	for _, dir := range cgroups {
		body, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if len(body) > 0 {
			return true
		}
	}
	return false
}

// startPython starts a jail that runs until it is ended, and waits for its
// first line.
func startPython(t *testing.T, spec Spec) *Process {
	t.Helper()
	p, err := Compile(spec, Probe())
	if err != nil {
		t.Fatal(err)
	}
	r, w := pipe(t)
	process, err := Start(context.Background(), p, StartOptions{Stdout: w, Stderr: os.Stderr})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Kill(); process.Wait() })
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("first line %q: %v", line, err)
	}
	return process
}

func TestKillEndsDaemonsToo(t *testing.T) {
	process := startPython(t, testSpec(t, TreeReadOnly, python, "-I", "-c", daemon))
	begin := time.Now()
	process.Kill()
	exit := process.Wait()
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the end took %v", took)
	}
	if exit.Signal != syscall.SIGKILL || exit.Cause() != "killed" {
		t.Errorf("cause %q, signal %v", exit.Cause(), exit.Signal)
	}
}

func TestWorkerEndIsToldApart(t *testing.T) {
	for code, want := range map[string]string{
		`import os; os._exit(7)`:                                   "exit code 7",
		`import os, signal; os.kill(os.getpid(), signal.SIGSEGV)`:  "signal 11 (SIGSEGV)",
		`print("x" * 10)`:                                          "exit code 0",
		`b = [bytearray(b"x") * (1 << 26) for _ in range(100)]`:    "memory limit",
		`import os, time; os.fork() or time.sleep(1000); print(1)`: "exit code 0",
	} {
		spec := testSpec(t, TreeReadOnly, python, "-I", "-c", code)
		if want == "memory limit" && Probe().Lacks(CgroupMemory) {
			want = "exit code 1" // MemoryError, from RLIMIT_DATA
		}
		if got := runSpec(t, spec).exit.Cause(); got != want {
			t.Errorf("%s: %s, want %s", code, got, want)
		}
	}
}

func TestTaskLimitRefusesAFlood(t *testing.T) {
	spec := testSpec(t, TreeReadOnly, python, "-I", "-c", `import os, time
n, why = 0, None
try:
    while n < 5000:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        n += 1
except OSError as e: why = e.errno
print(n < 5000, why)`)
	if got := strings.TrimSpace(runSpec(t, spec).out); got != "True 11" {
		t.Errorf("got %q, want True 11", got)
	}
}

func TestSignalReachesTheWorker(t *testing.T) {
	process := startPython(t, testSpec(t, TreeReadOnly, python, "-I", "-c", `import time
try: print("up", flush=True); time.sleep(100)
except KeyboardInterrupt: raise SystemExit(9)`))
	if err := process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if exit := process.Wait(); exit.Code != 9 {
		t.Errorf("%s, want exit code 9", exit.Cause())
	}
	if err := process.Signal(syscall.SIGINT); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal after the end: %v, want %v", err, os.ErrProcessDone)
	}
}
