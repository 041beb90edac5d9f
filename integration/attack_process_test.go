package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cellblock/jail"
)

// processAttacks reach for a process of the host that belongs to the very user whose id
// the worker has: nothing but the jail is in the way. VICTIM is its pid; each must end in
// ESRCH or ENOENT, or in the refusal of the filter.
var processAttacks = []attack{
	{name: "looked for", code: `verdict = attempt(os.kill, VICTIM, 0)`},
	{name: "stopped by a signal", code: `verdict = attempt(os.kill, VICTIM, signal.SIGSTOP)`},
	{name: "a signal to a thread", code: call0(unix.SYS_TGKILL, "VICTIM, VICTIM, 0")},
	{name: "a signal by the older call", code: call0(unix.SYS_TKILL, "VICTIM, 0")},
	{name: "a signal with a value", code: call0(unix.SYS_RT_SIGQUEUEINFO, `VICTIM, signal.SIGCONT, struct.pack("iiiIii", signal.SIGCONT, 0, -1, os.getpid(), os.getuid(), 0) + bytes(104)`)},
	{name: "a signal to its group", code: `verdict = attempt(os.killpg, VICTIM, 0)`},
	{name: "its descriptor", code: call0(unix.SYS_PIDFD_OPEN, "VICTIM, 0")},
	{name: "a descriptor by its directory", code: `verdict = attempt(os.open, f"/proc/{VICTIM}", os.O_DIRECTORY)`},
	{name: "traced", code: call0(unix.SYS_PTRACE, "0x4206, VICTIM, 0, 0"), refused: []string{"EPERM", "ENOSYS"}},
	{name: "its memory", code: `verdict = attempt(os.open, f"/proc/{VICTIM}/mem", os.O_RDONLY)`},
	{name: "its environment", code: `verdict = attempt(lambda: open(f"/proc/{VICTIM}/environ", "rb").read())`},
	{name: "its descriptors", code: `verdict = attempt(os.listdir, f"/proc/{VICTIM}/fd")`},
	{name: "its root", code: `verdict = attempt(os.listdir, f"/proc/{VICTIM}/root/")`},
	{name: "its niceness", code: `verdict = attempt(os.setpriority, os.PRIO_PROCESS, VICTIM, 19)`},
	{name: "its processors", code: `verdict = attempt(os.sched_setaffinity, VICTIM, os.sched_getaffinity(0))`},
	{name: "its limits", code: `
import resource
verdict = attempt(resource.prlimit, VICTIM, resource.RLIMIT_NOFILE)`},
	{name: "its scheduling", code: `verdict = attempt(os.sched_setscheduler, VICTIM, os.SCHED_IDLE, os.sched_param(0))`},
	{name: "its input and output", code: call0(unix.SYS_IOPRIO_SET, "1, VICTIM, 3 << 13")},
	{name: "its session", code: `verdict = attempt(os.getsid, VICTIM)`},
	{name: "its list of locks", code: call0(unix.SYS_GET_ROBUST_LIST, "VICTIM, ctypes.byref(ctypes.c_long()), ctypes.byref(ctypes.c_long())")},
	{name: "its clock", code: `verdict = attempt(__import__("time").clock_gettime, (~VICTIM) << 3 | 2)`, refused: []string{"EINVAL", "ESRCH"}},
	{name: "every process there is, killed", code: `
import glob # which passes over a process that ends meanwhile
mine = {int(t.rpartition("/")[2]) for t in glob.glob("/proc/[0-9]*/task/*")} - {VICTIM}
reached = [p for p in range(2, 1 << 16) if p not in mine and attempt(os.kill, p, signal.SIGKILL) != "ESRCH"]
verdict = "done" if reached else "ESRCH"`},
}

// call0 is the code of a raw call in the process itself.
func call0(number int, args string) string {
	return fmt.Sprintf("verdict = attempt(raw, %d, %s)", number, args)
}

// victim starts a process of the worker's own user outside of any jail, whose pid no
// process of a session is likely to have.
func victim(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: jail.DefaultID, Gid: jail.DefaultID}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

// TestAttacksOnProcesses: a session reaches no process outside of it by its number, not
// even one of the same user, in no mode; and none of them ends or stops. The control is
// that user, outside of the jail.
func TestAttacksOnProcesses(t *testing.T) {
	tools := func(pid int) string { return fmt.Sprintf("%s\nVICTIM = %d\n", attackTools, pid) }
	refused := func(a attack) []string {
		if a.refused != nil {
			return a.refused
		}
		return []string{"ESRCH", "ENOENT"}
	}
	for _, m := range everyMode {
		t.Run(m, func(t *testing.T) {
			v := victim(t)
			s, sibling := open(t, inMode(t, m)), open(t, inMode(t, m))
			sibling.ok("kept = 5")
			s.ok(tools(v.Process.Pid))
			for _, a := range processAttacks {
				t.Run(a.name, func(t *testing.T) {
					s.t = t
					got := strings.Trim(s.ok(a.code+"\nverdict").value(), "'")
					if !strings.Contains(" "+strings.Join(refused(a), " ")+" ", " "+got+" ") {
						t.Errorf("inside the jail: %s, want one of %v", got, refused(a))
					}
				})
			}
			s.t = t
			s.alive()
			sibling.shows("kept", "5")
			if state := statusField(v.Process.Pid, "State"); !strings.HasPrefix(state, "S") {
				t.Errorf("the process outside is %q now", state)
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		for _, a := range processAttacks {
			t.Run(a.name, func(t *testing.T) {
				v := victim(t)
				cmd := exec.Command(pythonBin(), "-c", tools(v.Process.Pid)+a.code+"\nprint(verdict)")
				cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: v.SysProcAttr.Credential}
				if a.name == "every process there is, killed" {
					// The victim alone: others of this user may be somebody's work.
					cmd.Args[2] = strings.Replace(cmd.Args[2], "range(2, 1 << 16)", "[VICTIM]", 1)
				}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("control: %v\n%s", err, out)
				}
				if got := strings.TrimSpace(string(out)); strings.Contains(" "+strings.Join(refused(a), " ")+" ", " "+got+" ") {
					if a.name == "traced" {
						require(t, needTrace)
					}
					t.Errorf("outside the jail it ends in %s too", got)
				}
			})
		}
	})
}

// needTrace is that a process may trace another of its user that is no child of its own.
var needTrace = register("trace", func() string {
	if scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && strings.TrimSpace(string(scope)) != "0" {
		return "kernel.yama.ptrace_scope is " + strings.TrimSpace(string(scope))
	}
	return ""
})
