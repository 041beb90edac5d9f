package integration

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cellblock/kernel"
)

// withDescriptors lets this process open free more descriptors, and no others, while do
// runs.
func withDescriptors(t *testing.T, free int, do func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = 512
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var taken []int
	var err error
	for err == nil {
		var fd int
		if fd, err = syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
			taken = append(taken, fd)
		}
	}
	if !errors.Is(err, syscall.EMFILE) || len(taken) < free {
		t.Fatalf("%d descriptors were taken: %v", len(taken), err)
	}
	for _, fd := range taken[:free] {
		syscall.Close(fd)
	}
	defer func() {
		for _, fd := range taken[free:] {
			syscall.Close(fd)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}

// openFiles lists this process's descriptors with what they are, without those that Go's
// runtime keeps for itself.
func openFiles(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.Contains(to, "anon_inode:[event") && !strings.HasSuffix(to, "/fd") {
			out = append(out, e.Name()+" "+to)
		}
	}
	return out
}

// grown waits until a process has no more of something than before; what is too much else.
func grown(list func() []string, before []string) (more []string) {
	for range 100 {
		if more = list(); len(more) <= len(before) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return more
}

// TestLauncherWithoutDescriptors: a launcher that may open none, one, two … more files
// fails to start a session each time with an error that says so and what to do, leaves
// nothing of the attempt, and has a session that is as good as any as soon as they
// suffice. Nothing was known of the host before the first attempt.
func TestLauncherWithoutDescriptors(t *testing.T) {
	apart(t, nil, func(t *testing.T, room string) {
		t.Setenv("TMPDIR", newDirIn(t, room))
		var standing kernel.Info
		attempt := func() (r kernel.Result, err error) {
			s, err := openErr(t)
			if err != nil {
				return r, err
			}
			defer s.kernel.Close()
			r = s.kernel.Call(t.Context(), kernel.Call{Code: "6 * 7"})
			standing = s.kernel.Info()
			return r, nil
		}
		failed := 0
		var before []string
		for free := 0; ; free++ {
			if free > 200 {
				t.Fatal("200 descriptors do not suffice")
			}
			var r kernel.Result
			var err error
			withDescriptors(t, free, func() { r, err = attempt() })
			if err == nil && !r.IsError && r.Details.Value != nil && *r.Details.Value == "42" {
				break
			}
			failed++
			text := r.Text()
			if err != nil {
				text = err.Error()
			}
			if !strings.Contains(text, "too many open files") || !strings.Contains(text, "the limit of 512 (ulimit -n, or LimitNOFILE=") {
				t.Errorf("with %d descriptors: %s", free, text)
			}
			if free == 0 {
				before = openFiles(t)
			}
			if more := grown(func() []string { return openFiles(t) }, before); more != nil {
				t.Fatalf("with %d descriptors: open are\n%s\nbefore\n%s", free, strings.Join(more, "\n"), strings.Join(before, "\n"))
			}
			if left := descendants(os.Getpid()); len(left) != 0 {
				t.Fatalf("with %d descriptors: processes %v are left", free, left)
			}
		}
		if failed < 10 {
			t.Errorf("only %d starts failed: the limit has done nothing", failed)
		}
		if left := tempDirectories(t, map[int]bool{os.Getpid(): true}); len(left) != 0 {
			t.Errorf("%v are left", left)
		}
		scarce := standing
		if r, err := attempt(); err != nil || r.IsError {
			t.Fatalf("with plenty: %v %+v", err, r)
		}
		if !slices.Equal(lacking(scarce), lacking(standing)) || !reflect.DeepEqual(scarce.Limits, standing.Limits) || len(scarce.Witness) != len(standing.Witness) {
			t.Errorf("the first session that started is not as good as a later one:\n%+v\n%+v", scarce, standing)
		}
		t.Logf("%d starts failed", failed)
	})
}

// lacking are the features that a session does without.
func lacking(i kernel.Info) (names []string) {
	for _, d := range i.Degraded {
		names = append(names, d.Feature)
	}
	return names
}

// TestSessionOfALauncherWithoutDescriptors: a session that runs needs descriptors only
// after a cell that has made processes; where there are none its next cell is refused,
// and runs with its state as soon as there are some.
func TestSessionOfALauncherWithoutDescriptors(t *testing.T) {
	apart(t, nil, func(t *testing.T, _ string) {
		s := open(t)
		s.ok("import subprocess; kept = 1")
		withDescriptors(t, 0, func() { s.shows("kept", "1") })
		s.ok("subprocess.run(['true']);")
		for free := range 4 {
			withDescriptors(t, free, func() {
				r := s.run("kept = 2")
				if r.ename() != "ToolError" || !strings.Contains(r.text(), "too many open files") || !strings.Contains(r.text(), "LimitNOFILE") {
					t.Errorf("a cell for which there are no pipes: %s", r)
				}
			})
		}
		if r := s.shows("print('told'); kept", "1"); r.Details.Stdout != "told\n" {
			t.Errorf("%s", r)
		}
	})
}

// eat is Python that opens descriptors until there are none.
const eat = `
held = []
def eat():
    try:
        while True: held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as problem: return problem.errno
`

// TestCellWithoutDescriptors: a cell that has opened all that it may is told so by
// Linux; its session goes on, says what its cells print, and can let go of them.
func TestCellWithoutDescriptors(t *testing.T) {
	for _, c := range []struct{ name, before string }{
		{"alone", ""},
		{"after processes", "import subprocess; subprocess.run(['true'])"},
		{"with a process that lives on", "import subprocess; child = subprocess.Popen(['sleep', '600'])"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, func(o *kernel.Options) { o.Limits.OpenFiles = 200 })
			s.ok("import os" + eat)
			for i := range 3 {
				r := s.ok(c.before + "\neat()")
				if r.value() != "24" {
					t.Fatalf("round %d: want EMFILE: %s", i, r)
				}
				r = s.ok("import sys; sys.stderr.write('in'); print('told'); 6 * 7")
				if r.Details.Stdout != "told\n" || r.Details.Stderr != "in" || r.value() != "42" || len(r.Details.Outputs) != 2 {
					t.Fatalf("round %d: %s", i, r)
				}
				r = s.run("open('x')")
				if r.ename() != "OSError" || !strings.Contains(r.Details.Error.Value, "[Errno 24]") {
					t.Fatalf("round %d: want OSError, EMFILE: %s", i, r)
				}
				s.ok("while held: os.close(held.pop())")
			}
			s.ok("open('made', 'w').close(); eat()")
			s.reset()
			s.shows("os.listdir('.')", "['made']")
		})
	}
}

// TestThreadThatEatsDescriptors: one that takes each number as soon as it is free leaves
// none for the output of the next cell, which is refused then, and a reset ends it.
func TestThreadThatEatsDescriptors(t *testing.T) {
	s := open(t, func(o *kernel.Options) { o.Limits.OpenFiles = 200 })
	s.ok("import os, threading" + eat + `
def run():
    while True: eat()
threading.Thread(target=run, daemon=True).start()`)
	for range 3 {
		r := s.run("print('told')")
		if r.IsError && (r.ename() != "ToolError" || !strings.Contains(r.text(), "a reset closes them")) || !r.IsError && r.Details.Stdout != "told\n" {
			t.Fatalf("%s", r)
		}
	}
	s.reset()
	s.shows("os.listdir('.')", "[]")
}
