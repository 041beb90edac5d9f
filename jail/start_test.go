package jail

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cellblock/jail/seccomp"
	"cellblock/profiles"
)

const python = "/usr/bin/python3"

// testSpec is a jail like the product's: a session directory that is the
// caller's, the compatible profile, limits.
func testSpec(t testing.TB, tree TreeAccess, argv ...string) Spec {
	t.Helper()
	session := t.TempDir()
	if err := os.Chmod(session, 0o700); err != nil {
		t.Fatal(err)
	}
	return testSpecIn(session, tree, argv...)
}

func testSpecIn(session string, tree TreeAccess, argv ...string) Spec {
	document, err := profiles.Seccomp("compatible")
	if err != nil {
		panic(err)
	}
	filter, err := seccomp.Load("compatible", document)
	if err != nil {
		panic(err)
	}
	return Spec{
		Name: "test", Argv: argv, Env: []string{"PATH=/usr/bin:/bin", "HOME=/tmp/home", "LANG=C.UTF-8"}, Dir: session,
		Tree:    tree,
		Network: NetNone,
		Binds: []Bind{{Source: session, Target: session, Write: true, OwnerUID: os.Geteuid(), OwnerGID: os.Getegid(),
			Reason: "the session directory"}},
		Dirs:     []Dir{{Path: "/tmp/home", Mode: 0o700, Reason: "home"}},
		Limits:   Limits{MemoryBytes: 512 << 20, Tasks: 128, OpenFiles: 1024, TmpBytes: 64 << 20},
		Seccomp:  filter,
		Observe:  true,
		Hostname: "cellblock",
		Optional: []Feature{Landlock, SeccompNotify},
	}
}

// result is what a jailed command came to.
type result struct {
	out, err string
	exit     Exit
	report   Report
}

// runSpec starts a jail for a spec and waits for its end.
func runSpec(t testing.TB, spec Spec) result {
	t.Helper()
	p, err := Compile(spec, Probe())
	if err != nil {
		t.Fatal(err)
	}
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	process, err := Start(context.Background(), p, StartOptions{Stdout: outW, Stderr: errW})
	outW.Close()
	errW.Close()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	copied := make(chan struct{})
	go func() { io.Copy(&errs, errR); close(copied) }()
	io.Copy(&out, outR)
	<-copied
	select {
	case <-process.Done():
	case <-time.After(20 * time.Second):
		process.Kill()
		t.Fatal("the jail does not end")
	}
	return result{out.String(), errs.String(), process.Wait(), process.Report()}
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// py runs a Python program in a jail and returns what it printed.
func py(t testing.TB, tree TreeAccess, code string) string {
	t.Helper()
	got := runSpec(t, testSpec(t, tree, python, "-I", "-c", code))
	if got.exit.Code != 0 || got.exit.Signal != 0 {
		t.Fatalf("%s\n%s", got.exit.Cause(), got.err)
	}
	return strings.TrimSpace(got.out)
}

func TestFirstOutput(t *testing.T) {
	for _, tree := range []TreeAccess{TreeReadOnly, TreeWritable} {
		if got := py(t, tree, "print(42)"); got != "42" {
			t.Errorf("%s: printed %q, want 42", tree, got)
		}
	}
}

func TestSessionDirectoryIsWritable(t *testing.T) {
	spec := testSpec(t, TreeReadOnly, python, "-I", "-c", "open('made.txt','w').write('x'); import os; print(os.getcwd())")
	got := runSpec(t, spec)
	if strings.TrimSpace(got.out) != spec.Dir {
		t.Fatalf("working directory %q, want %q (%s)", got.out, spec.Dir, got.err)
	}
	info, err := os.Stat(filepath.Join(spec.Dir, "made.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := ownerOf(info); uid != os.Geteuid() {
		t.Errorf("made.txt belongs to %d, want %d, the owner of the session directory", uid, os.Geteuid())
	}
}
