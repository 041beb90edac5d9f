package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestInterpreters: one that cannot be used is an error on every call, which
// names the path tried and the reason.
func TestInterpreters(t *testing.T) {
	executable := func(t *testing.T, text string) string {
		path := newDirIn(t, "/var/tmp") + "/python-odd"
		write(t, path, text)
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name  string
		bin   func(t *testing.T) string
		words []string // one of them gives the reason
	}{
		{"missing", func(t *testing.T) string { return "/nonexistent/python3" }, []string{"no such file", "not exist", "not found"}},
		{"missing on PATH", func(t *testing.T) string { return "no-such-python" }, []string{"no such file", "not found", "path"}},
		{"a directory", func(t *testing.T) string { return newDir(t) }, []string{"directory"}},
		{"not executable", func(t *testing.T) string {
			path := newDir(t) + "/python3"
			write(t, path, "#!/bin/sh\n")
			return path
		}, []string{"permission", "executable"}},
		{"broken", func(t *testing.T) string { return executable(t, "#!/bin/sh\necho out of order >&2\nexit 3\n") }, []string{"out of order", "exit", "3"}},
		{"no program at all", func(t *testing.T) string { return executable(t, "\x7fELF nonsense") }, []string{"exec format", "not a program", "format"}},
		{"interpreter of the script is gone", func(t *testing.T) string { return executable(t, "#!/nonexistent/sh\n") }, []string{"no such file", "not found"}},
		{"too old", func(t *testing.T) string {
			require(t, needOldPython)
			return oldPython()
		}, []string{"3.9", "too old"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bin := c.bin(t)
			s, err := openErr(t, python(bin))
			texts := []string{}
			if err != nil {
				texts = append(texts, err.Error())
			} else {
				for range 2 {
					r := s.run("1")
					if !r.IsError || r.ename() != "ToolError" {
						t.Errorf("want ToolError on every call: %s", r)
					}
					texts = append(texts, r.text())
				}
			}
			for _, text := range texts {
				contains(t, "the error", text, bin)
				found := false
				for _, w := range c.words {
					found = found || strings.Contains(strings.ToLower(text), w)
				}
				if !found {
					t.Errorf("the error gives no reason (one of %q): %s", c.words, text)
				}
			}
		})
	}
}

// TestSessionDirectories: odd ones work, bad ones are refused with a reason.
func TestSessionDirectories(t *testing.T) {
	works := func(t *testing.T, dir string) *session {
		t.Helper()
		s := open(t, at(dir))
		s.ok(`open("made.txt", "w").write("1"); os.rename("made.txt", "renamed.txt"); os.mkdir("d"); os.rename("renamed.txt", "d/moved.txt")`)
		if data, err := os.ReadFile(dir + "/d/moved.txt"); err != nil || string(data) != "1" {
			t.Errorf("the host reads %q: %v", data, err)
		}
		return s
	}
	t.Run("with spaces, Unicode and quotes", func(t *testing.T) {
		t.Parallel()
		dir := newDir(t) + `/a b  ü 文件 'q' "d" $x %s \ ,=:;`
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		works(t, dir).shows("os.getcwd() == os.path.realpath('.')", "True")
	})
	t.Run("outside of /tmp", func(t *testing.T) {
		t.Parallel()
		dir, err := os.MkdirTemp("/var/tmp", "cellblock-test-")
		if err != nil {
			t.Skipf("no directory outside /tmp: %v", err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		works(t, dir).shows("os.getcwd()", "'"+dir+"'")
	})
	t.Run("beneath a directory closed to others", func(t *testing.T) {
		t.Parallel()
		parent := newDir(t)
		if err := os.Chmod(parent, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(parent+"/s", 0o700); err != nil {
			t.Fatal(err)
		}
		works(t, parent+"/s")
	})
	t.Run("a symbolic link", func(t *testing.T) {
		t.Parallel()
		base := newDir(t)
		if err := os.Mkdir(base+"/real", 0o755); err != nil {
			t.Fatal(err)
		}
		symlink(t, "real", base+"/link")
		works(t, base+"/link")
	})
	t.Run("on another file system", func(t *testing.T) {
		t.Parallel()
		require(t, needRoot)
		dir := newDir(t)
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		works(t, dir)
	})
	t.Run("of another owner, as root", func(t *testing.T) {
		t.Parallel()
		require(t, needRoot)
		dir := newDir(t)
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		works(t, dir)
		if owner(t, dir+"/d/moved.txt") != 65534 {
			t.Errorf("a file made inside belongs to %d, want the directory's owner", owner(t, dir+"/d/moved.txt"))
		}
	})
	for _, c := range []struct {
		name string
		dir  func(t *testing.T) string
	}{
		{"missing", func(t *testing.T) string { return newDir(t) + "/absent" }},
		{"a file", func(t *testing.T) string { p := newDir(t) + "/file"; write(t, p, ""); return p }},
		{"a dangling link", func(t *testing.T) string { p := newDir(t) + "/l"; symlink(t, "/nonexistent/x", p); return p }},
		{"a loop of links", func(t *testing.T) string { p := newDir(t) + "/l"; symlink(t, "l", p); return p }},
		{"unwritable", func(t *testing.T) string {
			require(t, needUser)
			p := newDir(t) + "/closed"
			if err := os.Mkdir(p, 0o555); err != nil {
				t.Fatal(err)
			}
			return p
		}},
		{"on a read-only file system", func(t *testing.T) string {
			require(t, needRoot)
			p := newDir(t)
			if err := unix.Mount("tmpfs", p, "tmpfs", unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Unmount(p, unix.MNT_DETACH) })
			return p
		}},
		{"the root directory", func(t *testing.T) string { return "/" }},
		{"/proc", func(t *testing.T) string { return "/proc" }},
	} {
		t.Run(c.name+" is refused", func(t *testing.T) {
			t.Parallel()
			dir := c.dir(t)
			s, err := openErr(t, at(dir))
			text := ""
			if err != nil {
				text = err.Error()
			} else if r := s.run("1"); r.IsError {
				text = r.text()
			}
			if text == "" {
				t.Fatalf("a session in %s was opened", dir)
			}
			contains(t, "the error", text, dir)
		})
	}
	t.Run("of a stranger, for an ordinary user", func(t *testing.T) {
		t.Parallel()
		require(t, needUser)
		if _, err := openErr(t, at("/usr")); err == nil {
			t.Error("a session in /usr was opened")
		}
	})
	t.Run("the command says it with exit code 2 or 5 and soon", func(t *testing.T) {
		t.Parallel()
		start := time.Now()
		out := command(t).dir(newDir(t)).run("run", "--session", "/nonexistent/dir", "--python", pythonBin(), "-c", "1")
		if out.code != 2 && out.code != 5 {
			t.Errorf("exit code %d", out.code)
		}
		contains(t, "stderr", out.stderr, "/nonexistent/dir")
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestEveryMode: each mode opens.
func TestEveryMode(t *testing.T) {
	for _, m := range []string{"off", "report", "enforce"} {
		open(t, mode(m)).shows("1 + 1", "2")
	}
	t.Run("shadow", func(t *testing.T) {
		require(t, needOverlay)
		open(t, shadowIn(newDirIn(t, "/var/tmp"))).shows("1 + 1", "2")
	})
	if _, err := openErr(t, mode("shadow")); err == nil {
		t.Error("mode shadow was opened without a place for its layers")
	} else {
		contains(t, "the error", err.Error(), "shadow")
	}
	if _, err := openErr(t, profile("no-such-profile")); err == nil {
		t.Error("an unknown profile was opened")
	}
}

// needOldPython asks for an interpreter below 3.9, of which pyenv may keep some.
var needOldPython = register("old-python", func() string {
	if oldPython() == "" {
		return "no interpreter below 3.9 on PATH or under ~/.pyenv/versions"
	}
	return ""
})

func oldPython() string {
	for _, minor := range []string{"8", "7", "6"} {
		if path, err := exec.LookPath("python3." + minor); err == nil && exec.Command(path, "-c", "1").Run() == nil {
			return path
		}
		if found, _ := filepath.Glob(os.Getenv("HOME") + "/.pyenv/versions/3." + minor + ".*/bin/python3"); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}
