package audit

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Variables that make this test binary a writer.
const (
	writeTo   = "AUDIT_TEST_WRITE"   // a log: append to it and print what was acknowledged
	fileLimit = "AUDIT_TEST_MAXFILE" // bytes of RLIMIT_FSIZE
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writeTo); path != "" {
		if err := writer(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// writer appends until it is killed or cannot, and prints each count that was
// acknowledged.
func writer(path string) error {
	if text := os.Getenv(fileLimit); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return err
		}
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			return err
		}
	}
	l, err := Open(path, Options{})
	if err != nil {
		return err
	}
	failures := 0
	for i := 0; failures < 3; i++ {
		err := l.Append(event("write", fmt.Sprint("/etc/", i)), event("remove", strings.Repeat("x", i%3000)))
		if err != nil {
			failures++
			fmt.Println("refused", err)
			continue
		}
		fmt.Println("acknowledged", l.Head().Count)
	}
	return l.Close()
}

// start runs this binary as a writer.
func start(t *testing.T, path string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), writeTo+"="+path), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

func acknowledged(line string) int64 {
	n, _ := strconv.ParseInt(strings.TrimPrefix(line, "acknowledged "), 10, 64)
	return n
}

// TestWhatWasAcknowledgedSurvivesAKill kills a writer under load, 100 times on
// one log, and each time finds everything that it had said was written.
func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit", "s1.jsonl")
	for i := range 100 {
		cmd, lines := start(t, path)
		last := int64(0)
		for lines.Scan() {
			n := acknowledged(lines.Text())
			if last == 0 {
				time.AfterFunc(time.Duration(i%20)*200*time.Microsecond, func() { cmd.Process.Kill() })
			}
			last = max(last, n)
		}
		cmd.Wait()
		if last == 0 {
			t.Fatalf("round %d: the writer said nothing", i)
		}
		if v := verify(t, path); !v.Clean() || v.Records < last || v.Live {
			t.Fatalf("round %d: %d were acknowledged: %+v", i, last, v)
		}
	}
}

func TestADiskThatIsFullIsAnErrorAndTakesNothingBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit", "s1.jsonl")
	cmd, lines := start(t, path, fileLimit+"=20000")
	full(t, path, lines)
	must(t, cmd.Wait())
}

// TestAFullTmpfs is the same on a file system of 64 KiB.
func TestAFullTmpfs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "small")
	must(t, os.Mkdir(dir, 0o700))
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		if asked := os.Getenv("JAIL_TEST_REQUIRE"); strings.Contains(asked, "root") || strings.Contains(asked, "all") {
			t.Fatalf("mount: %v, and JAIL_TEST_REQUIRE asks for root", err)
		}
		t.Skipf("a tmpfs cannot be mounted: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	path := filepath.Join(dir, "s1.jsonl")
	cmd, lines := start(t, path)
	full(t, path, lines)
	must(t, cmd.Wait())
	// Room again: the log goes on.
	must(t, syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=128k,mode=0700"))
	l, err := Open(path, Options{})
	must(t, err)
	must(t, l.Append(event("write", "/a")))
	must(t, l.Close())
	if v := verify(t, path); !v.Clean() {
		t.Errorf("%+v", v)
	}
}

func full(t *testing.T, path string, lines *bufio.Scanner) {
	t.Helper()
	last, refused := int64(0), 0
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "refused") {
			refused++
			if !strings.Contains(lines.Text(), "make room") {
				t.Errorf("the error does not say what to do: %s", lines.Text())
			}
			continue
		}
		last = acknowledged(lines.Text())
	}
	if last == 0 || refused == 0 {
		t.Fatalf("%d acknowledged, %d refused", last, refused)
	}
	if v := verify(t, path); !v.Clean() || v.Records != last || !v.Closed {
		t.Errorf("%d were acknowledged: %+v", last, v)
	}
}

func TestAnUnwritableHeadTakesTheRecordBack(t *testing.T) {
	l := newLog(t, Options{})
	must(t, l.Append(event("write", "/a")))
	must(t, l.head.file.Close())
	if err := l.Append(event("write", "/b")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
	if got := records(t, l.Path()); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

func BenchmarkAppend(b *testing.B) {
	l := newLog(b, Options{MaxBytes: 1 << 40})
	for b.Loop() {
		if err := l.Append(event("write", "/etc/hosts")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendFacts(b *testing.B) {
	l := newLog(b, Options{MaxBytes: 1 << 40})
	r := event("host.call", "echo.back")
	r.Program, r.Reason = "/usr/bin/python3", "reading harms nobody"
	for b.Loop() {
		r.Facts = map[string]any{FactCall: int64(7), "digest": Genesis, "argumentBytes": 12}
		if err := l.Append(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendBatch(b *testing.B) {
	l := newLog(b, Options{MaxBytes: 1 << 40})
	batch := make([]Record, 100)
	for i := range batch {
		batch[i] = event("write", fmt.Sprint("/etc/hosts/", i))
	}
	for b.Loop() {
		if err := l.Append(batch...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	l := newLog(b, Options{})
	for range 1000 {
		must(b, l.Append(event("write", "/etc/hosts")))
	}
	b.ResetTimer()
	for b.Loop() {
		if v := verify(b, l.Path()); !v.Clean() {
			b.Fatal(v)
		}
	}
}
