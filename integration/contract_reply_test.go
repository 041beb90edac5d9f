package integration

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"cellblock/kernel"
)

// TestReply: the reply in detail.
func TestReply(t *testing.T) {
	s := open(t)
	t.Run("text is stdout, stderr, traceback, then the value", func(t *testing.T) {
		r := s.run("print('out'); print('err', file=sys.stderr)\n7")
		if got := r.text(); got != "out\nerr\n7" && got != "out\n\nerr\n\n7" {
			t.Errorf("text %q", got)
		}
		r = s.run("print('out'); print('err', file=sys.stderr)\n1/0")
		text := r.text()
		out, err, tb := strings.Index(text, "out"), strings.Index(text, "err"), strings.Index(text, "Traceback")
		if out < 0 || err < out || tb < err {
			t.Errorf("the parts stand at %d, %d, %d in %q", out, err, tb, text)
		}
	})
	t.Run("nothing is (no output)", func(t *testing.T) {
		if got := s.ok("x = 1").text(); got != "(no output)" {
			t.Errorf("text %q", got)
		}
	})
	t.Run("details of a good cell", func(t *testing.T) {
		r := s.ok("print('out'); print('err', file=sys.stderr); 5")
		d := r.Details
		if r.IsError || d.Status != "ok" || d.Stdout != "out\n" || d.Stderr != "err\n" || r.value() != "5" || d.DurationMs == nil || *d.DurationMs < 0 || d.Error != nil {
			t.Errorf("%s", r)
		}
		if d.Session == "" || d.Tier != "jail" || d.Mode != "enforce" || d.Policy == nil || d.Policy.Mode != "enforce" || !d.Policy.Enforced || d.StateLost {
			t.Errorf("session, tier, mode, policy, stateLost: %s", r)
		}
		for _, name := range []string{"cpuMs", "peakMemoryBytes", "tasks"} {
			if len(d.Usage[name]) == 0 {
				t.Errorf("usage lacks %s: %s", name, r)
			}
		}
		if strings.Contains(string(r.raw), `"audit":`) {
			t.Errorf("an empty audit is not left out: %s", r)
		}
	})
	t.Run("details of a failed cell", func(t *testing.T) {
		r := s.raises("{}['k']", "KeyError")
		if r.Details.Error.Value != "'k'" || r.traceback() == "" {
			t.Errorf("%s", r)
		}
	})
	t.Run("generation counts restarts", func(t *testing.T) {
		before := s.ok("1").Details.Generation
		s.raises("os._exit(3)", "KernelExited")
		if after := s.ok("1").Details.Generation; after != before+1 {
			t.Errorf("generation %d, then %d", before, after)
		}
	})
	t.Run("code may be left out with reset or reload", func(t *testing.T) {
		s.reset()
		if r := s.reload(); len(r.Content) == 0 {
			t.Errorf("%s", r)
		}
	})
}

// TestOutputCap: numbers of the cap.
func TestOutputCap(t *testing.T) {
	t.Run("three million characters", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := s.ok("print('a' * 3000000)")
		want := strings.Repeat("a", 8192) + "\n...[truncated 3000001 chars]...\n" + strings.Repeat("a", 4095) + "\n"
		if r.Details.Stdout != want {
			t.Errorf("stdout has %d characters, want %d: %.60q … %.60q", len(r.Details.Stdout), len(want), r.Details.Stdout[8180:], r.Details.Stdout[len(r.Details.Stdout)-40:])
		}
		found := regexp.MustCompile(`\[full output: (.*/pi-py-kernel-[^/]*/cell-\d+\.out)\]$`).FindStringSubmatch(strings.TrimSpace(r.text()))
		if found == nil {
			t.Fatalf("the text does not end with the file's name: %q", r.text()[max(0, len(r.text())-200):])
		}
		if r.Details.FullOutputPath != found[1] || filepath.Dir(filepath.Dir(found[1])) != os.TempDir() {
			t.Errorf("fullOutputPath %q, named %q", r.Details.FullOutputPath, found[1])
		}
		data, err := os.ReadFile(found[1])
		if err != nil || len(data) != 3000001 {
			t.Errorf("the host reads %d bytes: %v", len(data), err)
		}
		s.shows("len(open("+quote(found[1])+").read())", "3000001")
		if r := s.run("open(" + quote(found[1]) + ", 'w')"); !r.IsError {
			t.Errorf("the cell can write its full output: %s", r)
		}
		s.kernel.Close()
		if _, err := os.Stat(filepath.Dir(found[1])); !os.IsNotExist(err) {
			t.Errorf("the temp directory outlives the kernel: %v", err)
		}
	})
	t.Run("20000 characters pass whole, one more does not", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		if r := s.ok("sys.stdout.write('é' * 20000); None"); utf8.RuneCountInString(r.Details.Stdout) != 20000 || r.Details.FullOutputPath != "" {
			t.Errorf("%d characters, file %q", utf8.RuneCountInString(r.Details.Stdout), r.Details.FullOutputPath)
		}
		r := s.ok("sys.stdout.write('é' * 20001); None")
		contains(t, "stdout", r.Details.Stdout, "...[truncated 20001 chars]...")
	})
	t.Run("stdout and stderr are capped apart", func(t *testing.T) {
		t.Parallel()
		r := open(t).ok("print('a' * 30000); print('b' * 10, file=sys.stderr)")
		contains(t, "stdout", r.Details.Stdout, "...[truncated 30001 chars]...")
		if r.Details.Stderr != "bbbbbbbbbb\n" {
			t.Errorf("stderr %q", r.Details.Stderr)
		}
	})
	t.Run("a small cap never gives more than was cut", func(t *testing.T) {
		t.Parallel()
		s := open(t, capped(1200))
		r := s.ok("print('a' * 5000)")
		if n := len(r.Details.Stdout); n > 5001 || n > 1200+60 {
			t.Errorf("%d characters with a cap of 1200", n)
		}
		contains(t, "stdout", r.Details.Stdout, "...[truncated 5001 chars]...")
		tiny := open(t, capped(10)).ok("print('a' * 11)")
		if n := len(tiny.Details.Stdout); n > 12 {
			t.Errorf("%d characters stand for 12: %q", n, tiny.Details.Stdout)
		}
	})
	t.Run("a shape hint stands in for a huge value", func(t *testing.T) {
		t.Parallel()
		r := open(t).ok("list(range(100000))")
		if r.Details.ShapeHint != "list len=100000" {
			t.Errorf("shapeHint %q", r.Details.ShapeHint)
		}
		contains(t, "text", r.text(), "[output truncated: list len=100000]")
		if len(r.text()) > 20000 {
			t.Errorf("the text has %d characters", len(r.text()))
		}
	})
	t.Run("the launcher's memory is bounded", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		s.ok("1")
		before := residentKiB(t)
		s.ok("for _ in range(200):\n    sys.stdout.write('x' * 1000000)\nNone")
		if grown := residentKiB(t) - before; grown > 128<<10 {
			t.Errorf("200 MB of output made the launcher grow by %d KiB", grown)
		}
	})
}

// TestAuditSeam: _AUDIT and the strings of report mode.
func TestAuditSeam(t *testing.T) {
	t.Run("declared entries are copied and the list starts empty", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := s.ok(`_AUDIT.append({"op": "write", "path": "/etc/hosts"}); _AUDIT.append({"op": "note", "what": object()})`)
		if n := len(r.auditWith("path", "/etc/hosts")); n != 1 {
			t.Errorf("%d entries: %s", n, r)
		}
		if n := len(r.auditWith("source", "declared")); n != 2 {
			t.Errorf("%d entries say that they were declared: %s", n, r)
		}
		contains(t, "what is not JSON", string(r.raw), "object object")
		s.shows("len(_AUDIT)", "0")
		noAudit(t, s, s.ok("1"))
	})
	t.Run("report mode's strings", func(t *testing.T) {
		t.Parallel()
		s := open(t, mode("report"))
		r := s.ok(`_AUDIT.append({"op": "write", "path": "/etc/hosts"})`)
		contains(t, "text", r.text(), "[audit policy] blocked 1 mutation(s) outside session cwd:")
		contains(t, "text", r.text(), "/etc/hosts")
		if r.Details.AuditPolicy != "blocked 1 out-of-session writes" {
			t.Errorf("auditPolicy %q", r.Details.AuditPolicy)
		}
		if r.Details.Policy == nil || r.Details.Policy.Enforced || r.Details.Policy.Mode != "report" {
			t.Errorf("policy: %s", r)
		}
		r = s.ok(`_AUDIT.append({"op": "write", "path": os.path.join(os.getcwd(), "in.txt")})`)
		if r.Details.AuditPolicy != "allowed 1 mutations" {
			t.Errorf("auditPolicy %q", r.Details.AuditPolicy)
		}
		lacks(t, "text", r.text(), "[audit policy]")
	})
	t.Run("what was seen is told apart from what was declared", func(t *testing.T) {
		t.Parallel()
		s := open(t, mode("report"))
		r := s.run(`
try: open("/etc/passwd", "r+").close()
except OSError: pass`)
		if len(r.auditWith("path", "/etc/passwd")) != 1 || len(r.auditWith("source", "declared")) != 0 {
			t.Errorf("%s", r)
		}
	})
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		r := open(t, mode("off")).ok(`_AUDIT.append({"op": "write", "path": "/etc/hosts"})`)
		if r.Details.AuditPolicy != "none" {
			t.Errorf("auditPolicy %q", r.Details.AuditPolicy)
		}
		lacks(t, "text", r.text(), "[audit policy]")
	})
}

// TestErrors: each ends in a structured reply.
func TestErrors(t *testing.T) {
	t.Run("timeout names its time", func(t *testing.T) {
		t.Parallel()
		r := open(t).runLimit("import time; time.sleep(60)", 250*time.Millisecond)
		if r.ename() != "KernelTimeout" {
			t.Errorf("%s", r)
		}
		contains(t, "text", r.text(), "python cell timed out after 0.25s")
	})
	t.Run("exit code and signal are named", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		contains(t, "text", s.raises("os._exit(3)", "KernelExited").text(), "python kernel exited (3)")
		contains(t, "text", s.raises("os.kill(os.getpid(), 9)", "KernelExited").text(), "SIGKILL")
	})
	t.Run("abort fails the running call and every queued one", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		s.ok("1")
		replies := make(chan reply, 2)
		for range 2 {
			go func() { replies <- s.run("import time; time.sleep(60)") }()
			time.Sleep(500 * time.Millisecond)
		}
		start := time.Now()
		s.kernel.Abort()
		for range 2 {
			if r := <-replies; r.ename() != "KernelKilled" {
				t.Errorf("%s", r)
			}
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("the abort took %v", took)
		}
		contains(t, "the next reply", s.ok("1").text(), lostNote)
	})
	t.Run("interrupt raises KeyboardInterrupt and keeps state", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		s.ok("x = 1")
		got := make(chan reply, 1)
		go func() { got <- s.run("import time; time.sleep(60)") }()
		eventually(t, "something is interrupted", hang, s.kernel.Interrupt)
		if r := <-got; r.ename() != "KeyboardInterrupt" {
			t.Errorf("%s", r)
		}
		s.shows("x", "1")
	})
	t.Run("a call whose context is cancelled stops its cell", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		s.ok("x = 1")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		r := s.call(ctx, kernel.Call{Code: "import time; time.sleep(60)"})
		if !r.IsError || time.Since(start) > 20*time.Second {
			t.Errorf("after %v: %s", time.Since(start), r)
		}
		s.shows("x", "1")
	})
	t.Run("the temp directory of a dead worker goes", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := s.ok("print('a' * 30000)")
		dir := filepath.Dir(r.Details.FullOutputPath)
		s.raises("os._exit(1)", "KernelExited")
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	})
	t.Run("tier process says so", func(t *testing.T) {
		t.Parallel()
		r := open(t, tier("process"), mode("report")).shows("1 + 1", "2")
		if r.Details.Tier != "process" {
			t.Errorf("tier %q", r.Details.Tier)
		}
		if _, err := openErr(t, tier("process")); err == nil {
			t.Error("tier process accepts mode enforce")
		}
	})
}

// TestOptions: defaults and what values mean.
func TestOptions(t *testing.T) {
	t.Run("audit policy by variable", func(t *testing.T) {
		t.Parallel()
		for value, want := range map[string]string{"0": "off", "1": "report", "": "report", "enforce": "enforce"} {
			out := command(t).dir(newDir(t)).env("PATH="+os.Getenv("PATH"), "HOME="+newDir(t), "PI_KERNEL_AUDIT_POLICY="+value).run("run", "--json", "--python", pythonBin(), "-c", "1")
			if r := decodeReply(t, []byte(out.line(t, 0))); r.Details.Mode != want {
				t.Errorf("%q gives mode %q, want %q", value, r.Details.Mode, want)
			}
		}
	})
	t.Run("true and false as modes", func(t *testing.T) {
		t.Parallel()
		for value, want := range map[string]string{"true": "report", "false": "off"} {
			if r := open(t, mode(value)).ok("1"); r.Details.Mode != want {
				t.Errorf("%s gives mode %q, want %q", value, r.Details.Mode, want)
			}
		}
	})
	t.Run("an interpreter as a name on PATH, and a virtual environment's", func(t *testing.T) {
		t.Parallel()
		open(t, python("python3")).shows("1 + 1", "2")
		venv := makeVenv(t)
		open(t, python(venv+"/bin/python")).shows("import sys; sys.prefix", "'"+venv+"'")
	})
	t.Run("start timeout", func(t *testing.T) {
		t.Parallel()
		slow := newDir(t) + "/slow"
		write(t, slow, "#!/bin/sh\nsleep 60\n")
		if err := os.Chmod(slow, 0o755); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		s, err := openErr(t, python(slow), func(o *kernel.Options) { o.StartTimeout = time.Second })
		if err == nil {
			if r := s.run("1"); r.ename() != "ToolError" {
				t.Errorf("%s", r)
			}
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
