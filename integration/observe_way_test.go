package integration

import (
	"os"
	"strings"
	"testing"
)

// observedWays lead to P, a place outside of the session with a file f in it, by paths
// that do not say so.
var observedWays = []struct{ name, code, want string }{
	{"a descriptor's name in /dev", `r = os.open(P + "/f", 0); open("/dev/fd/%d" % r, "r+").close()`, "write P/f"},
	{"a directory's, and on", `r = os.open(P, 0); open("/dev/fd/%d/new" % r, "w").close()`, "write P/new"},
	{"a link of the session's into /proc", `os.symlink("/proc/self/fd", "fds"); r = os.open(P, 0); os.mkdir("fds/%d/new2" % r)`, "mkdir P/new2"},
	{"a link of a link", `os.symlink("fds", "fds2"); r = os.open(P + "/f", 0); os.truncate("fds2/%d" % r, 3)`, "truncate P/f"},
	{"up from a removed directory", `os.mkdir("/tmp/z"); d = os.open("/tmp/z", os.O_PATH); os.rmdir("/tmp/z"); os.close(os.open("../.." + P + "/made", os.O_WRONLY | os.O_CREAT, dir_fd=d))`, "write P/made"},
	{"up from two of them", `os.makedirs("/tmp/z/y"); d = os.open("/tmp/z/y", os.O_PATH); os.rmdir("/tmp/z/y"); os.rmdir("/tmp/z"); os.mkdir("./.././../.." + P + "/made2", dir_fd=d)`, "mkdir P/made2"},
	{"up from a removed working directory", `
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
try: os.unlink("../../../../../../../.." + P + "/f2")
finally: os.chdir(S)`, "remove P/f2"},
	{"a path in memory that is to be written alone", `
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.mmap(-1, mmap.PAGESIZE)
page.write((P + "/f").encode() + b"\0")
where = ctypes.addressof(ctypes.c_char.from_buffer(page))
assert libc.mprotect(ctypes.c_void_p(where), mmap.PAGESIZE, mmap.PROT_WRITE) == 0
fd = libc.open(ctypes.c_void_p(where), os.O_WRONLY)
if fd < 0: raise OSError(ctypes.get_errno(), "open")
os.close(fd)`, "write P/f"},
	{"a descriptor of a file that is called as if it were removed", `r = os.open(P + "/g (deleted)", 0); open("/dev/fd/%d" % r, "r+").close()`, "write P/g (deleted)"},
	{"beneath a directory that is", `r = os.open(P + "/h (deleted)", 0); os.mkdir("/proc/self/fd/%d/new" % r)`, "mkdir P/h (deleted)/new"},
	{"beneath it by a descriptor", `r = os.open(P + "/h (deleted)", 0); os.mkdir("new2", dir_fd=r)`, "mkdir P/h (deleted)/new2"},
	{"from within it", `
os.chdir(P + "/h (deleted)")
try: os.mkdir("new3")
finally: os.chdir(S)`, "mkdir P/h (deleted)/new3"},
	{"a name for itself", `os.rename(P + "/f", P + "/f")`, "rename-from P/f, rename-to P/f"},
	{"a file's version", `fcntl.ioctl(os.open(P + "/f", 0), 0x40087602, struct.pack("l", 5))`, "chmod P/f"},
}

// TestObserverKnowsEveryWay: what a path leads to counts, not what it looks like.
func TestObserverKnowsEveryWay(t *testing.T) {
	require(t, needUserns, needNotify)
	for _, in := range []string{"report", "enforce"} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			s := open(t, mode(in))
			for _, c := range observedWays {
				place := newDirIn(t, "/var/tmp")
				write(t, place+"/f", "canary")
				write(t, place+"/f2", "canary")
				write(t, place+"/g (deleted)", "canary")
				if err := os.Mkdir(place+"/h (deleted)", 0o755); err != nil {
					t.Fatal(err)
				}
				s.ok("import fcntl, os, struct\nP, S = " + quote(place) + ", " + quote(s.dir))
				r := s.run(c.code)
				var told []string
				for _, v := range r.violations() {
					told = append(told, v.Op+" "+strings.Replace(v.Path, place, "P", 1))
				}
				if strings.Join(told, ", ") != c.want {
					t.Errorf("%s: told as %q, want %q; %+v", c.name, told, c.want, r.Details.Error)
				}
				if refused := r.Details.Error != nil; refused != (in == "enforce") {
					t.Errorf("%s: %+v", c.name, r.Details.Error)
				}
			}
		})
	}
}

// TestObserverSaysWhatItCannotName: a place deeper than any path is told without one.
func TestObserverSaysWhatItCannotName(t *testing.T) {
	require(t, needUserns, needNotify)
	s := open(t, mode("report"))
	place := newDirIn(t, "/var/tmp")
	t.Cleanup(func() { os.RemoveAll(place) })
	r := s.ok(`import os
os.chdir(` + quote(place) + `)
for i in range(25): os.mkdir("D" * 200), os.chdir("D" * 200)
open("deep", "w").close(); os.chdir("/")`)
	made, unnamed := 0, 0
	for _, v := range r.violations() {
		if v.Path == "" {
			unnamed += v.Count
		}
		made += v.Count
	}
	if made != 26 || unnamed < 5 {
		t.Errorf("%d told, of which %d without a path: %+v", made, unnamed, r.violations())
	}
}
