package jail

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cellblock/jail/enter"
)

// roomy is a jail that waits for a directory in its room, and the room. What its worker
// prints comes when go is closed.
type roomy struct {
	*Process
	room string
	in   *os.File
	out  chan string
}

const inRoom = `read go
cd "$ROOM/own" && echo mine > made && echo made
echo x 2>/dev/null > "$ROOM/beside/made" || echo beside refused
echo x 2>/dev/null > "$ROOM/made" || echo room refused
umount "$ROOM/own" 2>/dev/null || echo umount refused
mkdir "$ROOM/own/sub" && mv "$ROOM/own/made" "$ROOM/own/sub/moved" && echo moved
awk -v p="$ROOM/own" '$5 == p { print $6 }' /proc/self/mountinfo`

func startRoomy(t *testing.T, tree TreeAccess) roomy {
	t.Helper()
	// Not in /tmp, which is the jail's own.
	room, err := os.MkdirTemp("/var/tmp", "cellblock-room-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(room) })
	if err := os.Chmod(room, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"own", "beside"} {
		if err := os.Mkdir(filepath.Join(room, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	spec := testSpec(t, tree, "/bin/sh", "-c", inRoom)
	spec.Binds, spec.Dir, spec.Room = nil, "/", room
	spec.Env = append(spec.Env, "ROOM="+room)
	p, err := Compile(spec, Probe())
	if err != nil {
		t.Fatal(err)
	}
	read, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	process, err := Start(context.Background(), p, StartOptions{Stdin: read, Stdout: write, Stderr: write})
	read.Close()
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	r := roomy{process, room, in, make(chan string, 1)}
	go func() {
		var all bytes.Buffer
		_, _ = all.ReadFrom(out)
		out.Close()
		r.out <- all.String()
	}()
	t.Cleanup(func() { process.Kill(); process.Wait(); in.Close() })
	return r
}

func (r roomy) bind() Bind {
	own := filepath.Join(r.room, "own")
	return Bind{Source: own, Target: own, Write: true, OwnerUID: os.Geteuid(), OwnerGID: os.Getegid(), Reason: "test"}
}

// goOn lets the worker run and returns what it prints.
func (r roomy) goOn(t *testing.T) string {
	t.Helper()
	_, _ = r.in.WriteString("go\n")
	select {
	case out := <-r.out:
		return out
	case <-time.After(time.Minute):
		t.Fatal("the worker does not end")
		return ""
	}
}

// TestRoom: a directory that is attached to a running jail can be used as one that was
// there from its start, and nothing beside it.
func TestRoom(t *testing.T) {
	r := startRoomy(t, TreeReadOnly)
	found, err := r.Attach(r.bind())
	if err != nil {
		t.Fatal(err)
	}
	if found.Got != "yes" || found.Arg != filepath.Join(r.room, "own") || found.Reason == "" {
		t.Errorf("found %+v, want a check of the witness", found)
	}
	want := "made\nbeside refused\nroom refused\numount refused\nmoved\nrw,nosuid,nodev"
	if out := strings.TrimSpace(strings.NewReplacer(",relatime", "", ",idmapped", "").Replace(r.goOn(t))); out != want {
		t.Errorf("in the room:\n%s\nwant\n%s", out, want)
	}
	// On disk it belongs to the owner of the directory.
	info, err := os.Stat(filepath.Join(r.room, "own", "sub", "moved"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := ownerOf(info); uid != os.Geteuid() {
		t.Errorf("the file belongs to %d, want %d", uid, os.Geteuid())
	}
}

// TestRoomOfAWritableTree is TestRoom where the host's own rights decide on the rest.
func TestRoomOfAWritableTree(t *testing.T) {
	r := startRoomy(t, TreeWritable)
	if _, err := r.Attach(r.bind()); err != nil {
		t.Fatal(err)
	}
	if out := r.goOn(t); !strings.HasPrefix(out, "made\n") || !strings.Contains(out, "umount refused\nmoved\nrw,nosuid,nodev") {
		t.Errorf("in the room:\n%s", out)
	}
}

// TestRoomIsTakenOnce: a second directory, one outside of the room, and one behind a
// link end the jail.
func TestRoomIsTakenOnce(t *testing.T) {
	for name, try := range map[string]func(r roomy) error{
		"second": func(r roomy) error {
			if _, err := r.Attach(r.bind()); err != nil {
				t.Error(err)
			}
			_, err := r.Attach(r.bind())
			return err
		},
		"outside": func(r roomy) error {
			b := r.bind()
			b.Source, b.Target = "/etc", "/etc"
			_, err := r.Attach(b)
			return err
		},
		"the room itself": func(r roomy) error {
			b := r.bind()
			b.Target = r.room
			_, err := r.Attach(b)
			return err
		},
		"source behind a link": func(r roomy) error {
			b := r.bind()
			b.Source = filepath.Join(r.room, "link")
			if err := os.Symlink("own", b.Source); err != nil {
				t.Error(err)
			}
			_, err := r.Attach(b)
			return err
		},
		"target behind a link": func(r roomy) error {
			b := r.bind()
			b.Target = filepath.Join(r.room, "link")
			if err := os.Symlink("beside", b.Target); err != nil {
				t.Error(err)
			}
			_, err := r.Attach(b)
			return err
		},
		"nothing there": func(r roomy) error {
			b := r.bind()
			b.Source += "-gone"
			_, err := r.Attach(b)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRoomy(t, TreeReadOnly)
			if err := try(r); err == nil {
				t.Fatal("attached")
			}
			ends(t, r.Process)
			if out := r.goOn(t); out != "" {
				t.Errorf("the worker went on: %q", out)
			}
		})
	}
}

// TestEachStepOfAnAttachmentFailing: a jail whose room could not be filled runs nothing.
func TestEachStepOfAnAttachmentFailing(t *testing.T) {
	for n := 1; n <= enter.Steps; n++ {
		r := startRoomy(t, TreeReadOnly)
		enter.Fail = n
		_, err := r.Attach(r.bind())
		enter.Fail = 0
		if err == nil {
			t.Fatalf("step %d failed, and the directory is attached", n)
		}
		ends(t, r.Process)
		if out := r.goOn(t); out != "" {
			t.Errorf("step %d failed (%v), and the worker went on: %q", n, err, out)
		}
	}
}

func ends(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("the jail has not ended")
	}
	if _, err := p.Attach(Bind{}); err == nil {
		t.Error("an ended jail takes a directory")
	}
}

// TestRoomsThatCannotBe: where the jail has a place of its own, or shows only what is
// listed, nothing could be attached.
func TestRoomsThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"in /tmp":       func(s *Spec) { s.Room = "/tmp/sessions" },
		"the root":      func(s *Spec) { s.Room = "/" },
		"hidden":        func(s *Spec) { s.Room = "/home/u/.ssh/sessions" },
		"a listed tree": func(s *Spec) { s.Listed = true },
		"unclean":       func(s *Spec) { s.Room = "/srv/../etc" },
	} {
		spec := handMadeSpec(TreeReadOnly)
		spec.Room = "/srv/sessions"
		if _, err := Compile(spec, handMade(true)); err != nil {
			t.Fatal(err)
		}
		change(&spec)
		var wrong *SpecError
		if _, err := Compile(spec, handMade(true)); !errors.As(err, &wrong) {
			t.Errorf("%s: %v, want a spec error", name, err)
		}
	}
}

// What lies beneath a cover cannot be listed, changed, moved or uncovered.
func TestACoveredDirectoryOfWhatWasAttachedIsOutOfReach(t *testing.T) {
	r := startRoomy(t, TreeReadOnly)
	hidden, empty := filepath.Join(r.room, "own", "sub"), filepath.Join(r.room, "empty")
	for dir, mode := range map[string]os.FileMode{hidden: 0o777, empty: 0} {
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Cover(empty, hidden); err == nil {
		t.Error("covered before anything was attached")
	}
	r = startRoomy(t, TreeReadOnly)
	hidden, empty = filepath.Join(r.room, "own", "sub"), filepath.Join(r.room, "empty")
	for dir, mode := range map[string]os.FileMode{hidden: 0o777, empty: 0} {
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Attach(r.bind()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Cover(empty, hidden); err != nil {
		t.Fatal(err)
	}
	out := r.goOn(t)
	if strings.Contains(out, "moved") || !strings.Contains(out, "made") {
		t.Errorf("%q", out)
	}
	if left, err := os.ReadDir(hidden); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
