package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"cellblock/kernel"
	"cellblock/policy/audit"
)

// Disks that are full. Each is a small tmpfs, which an ordinary user may mount in
// namespaces of his own, and the sessions are this process's.

// fillDisk takes every byte of a directory's disk, and every file that it has room for,
// and returns what makes room again.
func fillDisk(t *testing.T, dir string) (empty func()) {
	t.Helper()
	made := filepath.Join(dir, "filler")
	if err := os.Mkdir(made, 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	for i, block := 0, make([]byte, 64<<10); err == nil; i++ {
		var f *os.File
		if f, err = os.Create(filepath.Join(made, strconv.Itoa(i))); err != nil {
			break
		}
		for whole := i == 0; whole && err == nil; {
			_, err = f.Write(block)
		}
		f.Close()
		if i == 0 && errors.Is(err, syscall.ENOSPC) {
			err = nil
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling %s: %v", dir, err)
	}
	return func() {
		if err := os.RemoveAll(made); err != nil {
			t.Error(err)
		}
	}
}

// fillCell is Python that fills the disk of a directory.
const fillCell = `
def fill(path):
    with open(path, "wb", buffering=0) as f:
        while True: f.write(b"x" * 65536)
`

// noRoom wants a cell's OSError to be that of a full disk.
func noRoom(t *testing.T, r reply) {
	t.Helper()
	if r.ename() != "OSError" || !strings.Contains(r.Details.Error.Value, "[Errno 28]") {
		t.Errorf("want OSError, ENOSPC: %s", r)
	}
}

// inPlaces is a session whose own temp directory, state and record lie in the room.
func inPlaces(t *testing.T, room string, opts ...option) (*session, error) {
	t.Helper()
	for _, name := range []string{"s", "tmp", "state", "audit"} {
		if err := os.MkdirAll(filepath.Join(room, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", room+"/tmp")
	all := []option{at(room + "/s"), func(o *kernel.Options) {
		o.State, o.Runtime = []string{room + "/state"}, room+"/state/runtime"
	}}
	return openErr(t, append(all, opts...)...)
}

// mustOpen is inPlaces where opening has to work.
func mustOpen(t *testing.T, room string, opts ...option) *session {
	t.Helper()
	s, err := inPlaces(t, room, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// smallAt names the one small disk of a test: a directory of its room.
func smallAt(name string) func(string) []disk {
	return func(room string) []disk { return []disk{{filepath.Join(room, name), 2 << 20}} }
}

// TestFullDiskOfTheSession: the cell is told, and the session goes on.
func TestFullDiskOfTheSession(t *testing.T) {
	apart(t, smallAt("s"), func(t *testing.T, room string) {
		for _, m := range bothModes {
			s := mustOpen(t, room, mode(m))
			s.ok("kept = 1" + fillCell)
			noRoom(t, s.run(`fill("filler")`))
			s.shows("kept", "1")
			noRoom(t, s.run(`open("other", "w").write("x" * 9000)`))
			// What the launcher writes for the session lies elsewhere.
			if r := s.ok(`print("y" * 100000)`); r.Details.FullOutputPath == "" || len(r.Details.Notes) != 0 {
				t.Errorf("a long output: %s", r)
			}
			s.reset()
			s.shows("'kept' in globals()", "False")
			s.ok(`os.remove("filler"); open("again", "w").write("x" * 9000);`)
		}
	})
}

// TestFullPrivateDirectories: the session's own /tmp and shared memory have ends, too.
func TestFullPrivateDirectories(t *testing.T) {
	s := open(t, func(o *kernel.Options) { o.Limits.TmpBytes, o.Limits.FileSizeBytes = 4<<20, 64<<20 })
	s.ok("kept = 1" + fillCell)
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		noRoom(t, s.run(`fill("`+dir+`/filler")`))
		noRoom(t, s.run(`open("`+dir+`/other", "w").write("x" * 9000)`))
		s.ok(`os.remove("` + dir + `/filler"); open("` + dir + `/again", "w").write("x" * 9000);`)
	}
	if r := s.run(`fill("filler")`); r.ename() != "OSError" || !strings.Contains(r.Details.Error.Value, "[Errno 27]") {
		t.Errorf("a file beyond the limit of its size: want OSError, EFBIG: %s", r)
	}
	s.shows("kept", "1")
}

// TestFullDiskOfTheTempDirectory: a start says which directory has no room, and a cell's
// long output is cut as always, with a word on what could not be kept.
func TestFullDiskOfTheTempDirectory(t *testing.T) {
	apart(t, smallAt("tmp"), func(t *testing.T, room string) {
		s := mustOpen(t, room)
		empty := fillDisk(t, room+"/tmp")
		for range 3 {
			r := s.run("1")
			if r.ename() != "ToolError" || !strings.Contains(r.text(), room+"/tmp") || !strings.Contains(r.text(), "no space left on device") || !strings.Contains(r.text(), "make room") {
				t.Fatalf("a start without room: %s", r)
			}
		}
		if left, err := filepath.Glob(room + "/tmp/pi-py-kernel-*"); err != nil || len(left) != 0 {
			t.Errorf("starts that failed have left %v, %v", left, err)
		}
		empty()
		s.ok("kept = 1")

		empty = fillDisk(t, room+"/tmp")
		r := s.ok(`print("y" * 100000)`)
		if r.Details.FullOutputPath != "" || len(r.Details.Notes) != 1 || !strings.Contains(r.Details.Notes[0], "full output could not be kept") || !strings.Contains(r.Details.Notes[0], "no space left on device") {
			t.Errorf("a long output without room: %s", r)
		}
		contains(t, "the reply", r.Details.Stdout, "...[truncated 100001 chars]...")
		empty()

		// Half of it fits; the half is no full output, and gives its room back.
		r = s.ok(`print("z" * 3000000)`)
		if r.Details.FullOutputPath != "" || len(r.Details.Notes) != 1 || !strings.Contains(r.Details.Notes[0], "full output could not be kept") {
			t.Errorf("an output larger than the disk: %s", r)
		}
		r = s.ok(`print("y" * 1500000)`)
		if r.Details.FullOutputPath == "" || len(r.Details.Notes) != 0 {
			t.Errorf("a long output with room again: %s", r)
		} else if text := readFile(t, r.Details.FullOutputPath); len(text) != 1500001 {
			t.Errorf("%d characters are kept", len(text))
		}
		s.shows("kept", "1")
		if err := s.kernel.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestFullDiskOfTheState: what is only there to make starts faster is done without.
func TestFullDiskOfTheState(t *testing.T) {
	apart(t, smallAt("state"), func(t *testing.T, room string) {
		s := mustOpen(t, room)
		empty := fillDisk(t, room+"/state")
		s.shows("6 * 7", "42")
		if err := s.kernel.Close(); err != nil {
			t.Error(err)
		}
		empty()
		mustOpen(t, room).shows("6 * 7", "42")
		if kept, err := os.ReadDir(room + "/state/runtime"); err != nil || len(kept) != 1 {
			t.Errorf("with room again the source is kept: %v, %v", kept, err)
		}
	})
}

// TestFullDiskOfTheRecord: under enforce nothing runs that cannot be recorded, and the
// error says of which file and what to do; under report the reply says what was not
// recorded. With room again both go on, and the record tells of its gap.
func TestFullDiskOfTheRecord(t *testing.T) {
	for _, m := range bothModes {
		t.Run(m, func(t *testing.T) {
			apart(t, smallAt("audit"), func(t *testing.T, room string) {
				log := room + "/audit/s.jsonl"
				empty := fillDisk(t, room+"/audit")
				var failed *audit.OpenError
				s, err := inPlaces(t, room, mode(m), audited(log))
				if err == nil {
					r := s.run("open('ran', 'w').close()")
					if m == "enforce" && (r.ename() != "ToolError" || !strings.Contains(r.text(), log)) {
						t.Errorf("a session that cannot be recorded: %s", r)
					}
					_ = s.kernel.Close() // it may say again what could not be written
				} else if !errors.As(err, &failed) || !strings.Contains(err.Error(), log) || !strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), "make room") {
					t.Errorf("a record that cannot be opened: %v", err)
				}
				if _, err := os.Stat(room + "/s/ran"); err == nil && m == "enforce" {
					t.Error("a cell ran that could not be recorded")
				}
				empty()
				os.Remove(log)
				os.Remove(log + audit.HeadSuffix)

				s = mustOpen(t, room, mode(m), audited(log))
				s.ok("ran = 0")
				empty = fillDisk(t, room+"/audit")
				said, ran, refused := false, 0, 0
				for range 200 { // a line may still fit into the record's last page
					r := s.run("ran += 1; ran")
					said = said || strings.Contains(strings.Join(r.Details.Notes, " "), "audit records could not be written")
					if !r.IsError {
						ran++
					} else if refused++; r.ename() != "ToolError" || !strings.Contains(r.text(), log) || !strings.Contains(r.text(), "no space left on device") || !strings.Contains(r.text(), "make room") {
						t.Fatalf("%s", r)
					}
					if said && ran+refused > 3 && (m == "report" || refused > 1) {
						break
					}
				}
				if !said || (refused > 0) != (m == "enforce") {
					t.Fatalf("%d cells ran and %d were refused; the loss was said: %v", ran, refused, said)
				}
				empty()
				r := s.ok("ran += 1; ran")
				if r.value() != strconv.Itoa(ran+1) {
					t.Errorf("%d cells ran, and now the count is %s: a refused one ran", ran, r.value())
				}
				if err := s.kernel.Close(); err != nil {
					t.Error(err)
				}
				gaps := int64(0)
				for _, record := range readLog(t, log) {
					if record.Op == audit.OpGap {
						gaps += record.Times()
					}
				}
				if gaps == 0 {
					t.Error("the record does not tell of its gap")
				}
			})
		})
	}
}

// TestFullDiskOfTheDefinitions: the cell is as good as before, and the reply says that
// the next session will not know of it.
func TestFullDiskOfTheDefinitions(t *testing.T) {
	apart(t, smallAt("state/definitions"), func(t *testing.T, room string) {
		keeping := func(o *kernel.Options) {
			o.Name, o.KeepDefinitions, o.Definitions = "notes", true, room+"/state/definitions"
		}
		s := mustOpen(t, room, keeping)
		s.ok("A = 1")
		empty := fillDisk(t, room+"/state/definitions")
		r := s.ok("B = " + quote(strings.Repeat("b", 9000)))
		if note := strings.Join(r.Details.Notes, " "); !strings.Contains(note, "no space left on device") {
			t.Errorf("what could not be saved is not told: %s", r)
		}
		s.shows("A, len(B)", "(1, 9000)")
		empty()
		s.ok("C = 3")
		if err := s.kernel.Close(); err != nil {
			t.Error(err)
		}
		mustOpen(t, room, keeping).shows("A, len(B), C", "(1, 9000, 3)")
	})
}

// TestFullDiskOfALayer: in mode shadow a cell finds the disk of its layer full as any
// other, and the host's files stay as they are.
func TestFullDiskOfALayer(t *testing.T) {
	require(t, needOverlay, needRoot)
	apart(t, smallAt("state"), func(t *testing.T, room string) {
		write(t, room+"/host/file", "the host's")
		s := mustOpen(t, room, shadowIn(room+"/state"))
		s.ok("kept = 1" + fillCell)
		noRoom(t, s.run(`fill("`+room+`/host/filler")`))
		noRoom(t, s.run(`open("`+room+`/host/file", "a").write("x" * 9000)`))
		s.shows(`kept, open("`+room+`/host/file").read()`, `(1, "the host's")`)
		s.ok(`os.remove("` + room + `/host/filler"); open("` + room + `/host/file", "a").write("x" * 9000);`)
		if found, err := os.ReadDir(room + "/host"); err != nil || len(found) != 1 || readFile(t, room+"/host/file") != "the host's" {
			t.Errorf("the host has %v, %v", found, err)
		}
	})
}
