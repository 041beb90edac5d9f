package shadow

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/integration/need"
)

const manyFiles = `
printf one >file; printf two >doomed; printf three >before; printf x >tool; ln -s file link
mkdir -p tree/a tree/b/c fresh/sub empty kind; printf deep >tree/a/deep; printf bee >tree/b/c/bee
printf 1 >fresh/old1; printf 2 >fresh/old2; printf 3 >fresh/sub/inner; printf k >kind/file; printf in >kind/in
printf target >shared; ln shared alias
`

// scripts are what sessions do, each with what the host had.
var scripts = []struct{ name, fill, change string }{
	{"files", manyFiles, `
printf more >>file; printf new >new; rm doomed; mv before after; chmod 750 tool; touch -d @1.5 tree/b/c/bee; ln -sfn tool link
mkdir -p made/below; printf child >made/below/child; chmod 500 made/below; ln -s /etc/passwd made/link; printf y >made/y`},
	{"a directory removed and made again", manyFiles, `
rm -r fresh; mkdir fresh; printf again >fresh/old1; mkdir fresh/sub; printf other >fresh/sub/other`},
	{"a directory removed", manyFiles, `rm -r tree fresh empty`},
	{"kinds replaced", manyFiles, `
rm -r kind; printf now-a-file >kind; rm file; mkdir file; printf x >file/x; rm link; mkdir -p link/deep; rm -r tree/b; ln -s a tree/b; rm -r empty; ln -s tree empty`},
	{"names that are no text", `mkdir d; printf x >"d/old
line"; printf y >"$(printf 'd/\377\376')"`, `
printf z >>"d/old
line"; rm "$(printf 'd/\377\376')"; mkdir "$(printf 'd/\200dir')"; printf w >"$(printf 'd/\200dir/\033[31m')"; printf q >"d/.."" "; printf p >"d/--"`},
	{"a hole", `printf x >small`, `truncate -s 8M sparse; printf end >>sparse; truncate -s 4M small`},
	{"an empty file and a large one", `: >was-empty; head -c 3000000 /dev/zero >large`, `printf x >was-empty; : >empty; tr '\0' a <large >l2; mv l2 large`},
	{"names given to each other", `printf a >a; printf bb >b`, `mv a t; mv b a; mv t b`},
	{"one file on the way of another", `printf a >a; mkdir d; printf dd >d/f`, `mv d/f g; rmdir d; printf file >d`},
	{"files of a directory that goes", manyFiles, `mv tree/a/deep kept; mv tree/b/c/bee bee; printf more >>bee; rm -r tree`},
	{"hard links", manyFiles, `printf more >>shared; printf less >alias; printf n >n1; ln n1 n2; rm shared`},
	{"nothing may be entered by others", manyFiles, `chmod 700 tree; mkdir -m 711 private; printf s >private/s; chmod 600 private/s; chmod 1777 fresh`},
}

// rootScripts need directories that are renamed by a mark.
var rootScripts = []struct{ name, fill, change string }{
	{"a directory renamed", manyFiles, `mv tree wood; printf more >>wood/a/deep; rm wood/b/c/bee; printf n >wood/n; mkdir wood/b/m`},
	{"renamed below renamed", manyFiles, `mv tree wood; mv wood/b wood/branch; mv wood/branch/c wood/leaf; printf x >wood/leaf/x`},
	{"renamed out of a directory that goes", manyFiles, `mv tree/b/c c; rm -r tree; printf x >c/x`},
	{"renamed to a name that was free and then made again", manyFiles, `mv fresh stale; mkdir fresh; printf x >fresh/x`},
	{"in the place of one that was renamed", manyFiles, `mv tree old; mv fresh tree; printf x >tree/x; chmod 700 old`},
	{"in the place of one that was removed", manyFiles, `rm -r tree; mv fresh tree`},
	{"into a directory that is new", manyFiles, `mkdir -p new/er; mv tree new/er/tree; mv kind new/kind; rm new/kind/in`},
	{"in the place of a file", manyFiles, `rm file; mv tree file`},
	{"other owners", `printf x >mine; printf y >his; chown 1234:4321 his; mkdir dir; chown 1234 dir`, `printf z >>his; printf w >new; chown 77:88 new mine; chown 5 dir`},
}

func allScripts() []struct{ name, fill, change string } {
	if os.Geteuid() == 0 {
		return append(scripts, rootScripts...)
	}
	return scripts
}

// TestCommitMakesTheHostWhatTheSessionSaw: afterwards the host's directory is, in
// all that can be told of it, what the session had in view, and the layer is gone.
func TestCommitMakesTheHostWhatTheSessionSaw(t *testing.T) {
	for _, s := range allScripts() {
		t.Run(s.name, func(t *testing.T) {
			h := newHost(t, s.fill, s.change)
			res, err := h.layer.Commit(CommitOptions{Executable: true})
			if err != nil {
				t.Fatalf("%v\n%+v", err, res.Refused)
			}
			h.is(t, h.saw)
			if !res.Removed || h.reopened(t) != nil {
				d, _ := h.layer.Diff()
				t.Errorf("the layer is still there: %v, unread %v", d.Changes, d.Unread)
			}
		})
	}
}

// TestCommitByPath: each change by itself, in whatever order, comes to the same.
func TestCommitByPath(t *testing.T) {
	for _, s := range allScripts() {
		t.Run(s.name, func(t *testing.T) {
			h := newHost(t, s.fill, s.change)
			for range 100 {
				l := h.reopened(t)
				if l == nil {
					h.is(t, h.saw)
					return
				}
				d, err := l.Diff()
				if err != nil || len(d.Changes) == 0 {
					t.Fatalf("%v, unread %v", err, d.Unread)
				}
				last := d.Changes[len(d.Changes)-1]
				res, err := l.Commit(CommitOptions{Executable: true, Paths: []string{last.Path}})
				if err != nil {
					t.Fatalf("%v: %v\n%+v", last, err, res.Refused)
				}
				if len(res.Done) == 0 {
					t.Fatalf("%v: nothing was done", last)
				}
			}
			t.Error("the layer never gets empty")
		})
	}
}

type cutOff struct{}

// steps are how far apart the steps are at which tests stop a commit. With
// SHADOW_EVERY_STEP set they stop at each, which takes three times as long.
func steps() int {
	if os.Getenv("SHADOW_EVERY_STEP") != "" {
		return 1
	}
	return 3
}

// TestCommitCutOffAnywhere: a commit that ends at whatever step is finished by the
// next, and leaves nothing beside the files.
func TestCommitCutOffAnywhere(t *testing.T) {
	for i, s := range allScripts() {
		t.Run(s.name, func(t *testing.T) {
			for n := 1 + i%steps(); ; n += steps() {
				h := newHost(t, s.fill, s.change)
				if !commitUntil(t, h.layer, n) {
					break
				}
				if l := h.reopened(t); l != nil {
					res, err := l.Commit(CommitOptions{Executable: true})
					if err != nil {
						t.Fatalf("cut off at step %d, then: %v\n%+v\n%v", n, err, res.Refused, res.Notes)
					}
					if !res.Removed {
						t.Errorf("cut off at step %d, the layer is still there", n)
					}
				}
				h.is(t, h.saw)
				if left := h.asides(t); left != nil {
					t.Errorf("cut off at step %d, left %v", n, left)
				}
				if t.Failed() {
					t.Fatalf("cut off at step %d", n)
				}
			}
		})
	}
}

// commitUntil ends a commit at its nth step, as a kill would, and is false when it
// has fewer.
func commitUntil(t *testing.T, l *Layer, n int) (cut bool) {
	t.Helper()
	l.step = func() {
		if n--; n == 0 {
			panic(cutOff{})
		}
	}
	defer func() {
		switch what := recover().(type) {
		case nil:
		case cutOff:
			cut = true
		default:
			panic(what)
		}
	}()
	if _, err := l.Commit(CommitOptions{Executable: true}); err != nil {
		t.Fatal(err)
	}
	return false
}

// TestDiscardAfterACutOffCommit: dropping a layer takes what its commit has left
// beside files away, too.
func TestDiscardAfterACutOffCommit(t *testing.T) {
	for n := 1; ; n += steps() {
		h := newHost(t, manyFiles, scripts[0].change)
		if !commitUntil(t, h.layer, n) {
			break
		}
		if l := h.reopened(t); l != nil {
			if err := l.Discard(nil); err != nil {
				t.Fatal(err)
			}
		}
		if left := h.asides(t); left != nil || h.reopened(t) != nil {
			t.Fatalf("cut off at step %d, left %v", n, left)
		}
	}
}

// later changes the host after the layer was born, each way in which a commit has
// to keep off.
var later = []struct{ name, change, host, path, why string }{
	{"a file's content", `printf mine >>file`, `printf theirs >>file`, "file", "changed after"},
	{"a file's content, its time set back", `printf mine >>file`, `printf eno >file; touch -d @1 file`, "file", "changed after"},
	{"a file's rights", `printf mine >>file`, `chmod 600 file`, "file", "changed after"},
	{"another file in its place", `printf mine >>file`, `printf one >x; mv x file`, "file", "changed after"},
	{"a file removed", `printf mine >>file`, `rm file`, "file", "began as a copy"},
	{"a file that was to be removed", `rm doomed`, `printf theirs >>doomed`, "doomed", "changed after"},
	{"a file in a directory that was to be removed", `rm -r tree`, `printf theirs >>tree/b/c/bee`, "tree", "changed after"},
	{"a new file in a directory that was to be removed", `rm -r tree`, `printf theirs >tree/b/new`, "tree", "changed after"},
	{"a file in a directory that was made again", `rm -r fresh; mkdir fresh`, `printf theirs >>fresh/old1`, "fresh/old1", "changed after"},
	{"a file that was to be new", `printf mine >new`, `printf theirs >new`, "new", "changed after"},
	{"a link where a file was to be new", `printf mine >new`, `ln -s /etc/passwd new`, "new", "changed after"},
	{"a directory's rights", `chmod 755 tree; chmod 750 tree`, `chmod 700 tree`, "tree", "directory, or names in it"},
	{"the directory removed", `printf mine >tree/b/new`, `rm -r tree`, "tree", "was removed, or renamed"},
	{"the directory is a link", `printf mine >tree/b/new`, `mv tree wood; ln -s wood tree`, "tree", "changed after"},
	{"renamed and changed", `mv before after; printf mine >>after`, `printf theirs >>before`, "after", "changed after"},
}

// TestCommitKeepsOffWhatTheHostChanged: one conflict and nothing is done; without
// it, or with SkipConflicts, the rest is. The control is each of the scripts above.
func TestCommitKeepsOffWhatTheHostChanged(t *testing.T) {
	for _, c := range later {
		if c.name == "renamed and changed" && os.Geteuid() != 0 {
			c.path = "before" // nothing says that the new file was made of it
		}
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, manyFiles, c.change+"; printf x >innocent")
			shell(t, h.dir, c.host)
			before := census(t, h.dir)
			res, err := h.layer.Commit(CommitOptions{})
			if !errors.Is(err, ErrRefused) {
				t.Fatalf("%v, done %v", err, res.Done)
			}
			differ(t, census(t, h.dir), before)
			found := false
			for _, r := range res.Refused {
				found = found || r.Path == h.dir+"/"+c.path && strings.Contains(r.Why, c.why)
			}
			if !found {
				t.Errorf("refused %v, want %s because it %s", res.Refused, c.path, c.why)
			}
			if res, err = h.layer.Commit(CommitOptions{SkipConflicts: true}); err != nil || res.Left == 0 {
				t.Errorf("leaving conflicts out: %v, %v, %d left", err, res.Done, res.Left)
			}
			if _, err := os.Stat(h.dir + "/innocent"); err != nil {
				t.Error(err)
			}
			differ(t, at(census(t, h.dir), c.path), at(before, c.path))
		})
	}
}

// at is what a census tells of a path and what is beneath.
func at(census, path string) string {
	var lines []string
	for _, line := range strings.Split(census, "\n") {
		if strings.HasPrefix(line, `"/`+path+`"`) || strings.HasPrefix(line, `"/`+path+"/") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// during changes the host in the middle of a commit, at each of its steps.
var during = []struct{ name, change, host string }{
	{"a file's content", `printf mine >>file`, `printf theirs >>file`},
	{"another file in its place", `printf mine >>file`, `printf theirs >x && mv x file`},
	{"a link in its place", `printf mine >>file`, `ln -sf $OUT/victim file`},
	{"a link where a file was to be new", `printf mine >new`, `ln -s $OUT/victim new`},
	{"a link in the place of the directory", `printf mine >tree/b/new; printf mine >>tree/a/deep`, `mv tree wood && ln -s $OUT tree`},
	{"a link in the place of a directory above", `printf mine >tree/b/c/new; rm tree/b/c/bee`, `mv tree/b tree/x && ln -s $OUT tree/b`},
	{"a link in the place of a new directory", `mkdir -p made/below; printf mine >made/below/victim`, `if [ -d made ]; then mv made gone && ln -s $OUT made; fi`},
	{"a file in a directory that goes", `rm -r tree`, `printf theirs >tree/b/theirs`},
	{"a file that goes", `rm doomed`, `printf theirs >>doomed`},
}

// TestCommitWhileTheHostChanges: whatever is put in a commit's way while it works,
// nothing is written beyond it, and what others wrote is never lost.
func TestCommitWhileTheHostChanges(t *testing.T) {
	for _, c := range during {
		t.Run(c.name, func(t *testing.T) {
			for n := 1; ; n++ {
				h := newHost(t, manyFiles, c.change)
				out := newDir(t)
				shell(t, out, `mkdir -p a b/c below c; printf safe >victim; printf safe >deep; printf safe >a/deep; printf safe >b/c/bee; printf safe >c/bee; printf safe >below/victim; printf safe >bee`)
				before, left, did, wrote := census(t, out), n, false, false
				h.layer.step = func() {
					if left--; left == 0 {
						did = true
						cmd := strings.ReplaceAll(c.host, "$OUT", out)
						act := exec.Command("sh", "-ec", cmd)
						act.Dir = h.dir
						wrote = act.Run() == nil
					}
				}
				res, err := h.layer.Commit(CommitOptions{SkipConflicts: true})
				if err != nil && !errors.Is(err, ErrMoved) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ENOENT) {
					t.Errorf("step %d: %v, %v", n, err, res.Refused)
				}
				differ(t, census(t, out), before)
				if strings.Contains(c.host, "theirs") && wrote {
					text := ""
					for _, name := range []string{"file", "doomed", "tree/b/theirs"} {
						body, _ := os.ReadFile(filepath.Join(h.dir, name))
						text += string(body)
					}
					if !strings.Contains(text, "theirs") {
						t.Errorf("step %d: what another wrote is lost; done %v, refused %v, notes %v", n, res.Done, res.Refused, res.Notes)
					}
				}
				if t.Failed() {
					t.Fatalf("at step %d", n)
				}
				if !did {
					return
				}
			}
		})
	}
}

// TestCommitNeverFollowsWhatTheLayerHolds: a layer that somebody has tampered with
// (links in the middle of paths, devices, FIFOs) leads a commit nowhere.
func TestCommitNeverFollowsWhatTheLayerHolds(t *testing.T) {
	out := newDir(t)
	shell(t, out, `printf secret >secret; mkdir sub; printf secret >sub/secret`)
	before := census(t, out)
	for _, c := range []struct{ name, plant string }{
		{"a link in the place of a directory", `rm -rf tree; mkdir -p tree; rm -rf tree/a; ln -s $OUT tree/a`},
		{"a link to the root", `ln -s / way`},
		{"a chain of links", `ln -s two one; ln -s $OUT two`},
		{"a link that names itself", `ln -s self self`},
		{"a FIFO", `mkfifo file`},
		{"a FIFO in a new directory", `mkdir d; mkfifo d/p; printf x >d/x`},
		{"a socket", `python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, manyFiles, ":")
			shell(t, filepath.Join(h.layer.Path, "0", "upper"), strings.ReplaceAll(c.plant, "$OUT", out))
			done := make(chan error, 1)
			go func() {
				_, err := h.layer.Commit(CommitOptions{SkipConflicts: true})
				done <- err
			}()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("the commit hangs")
			}
			differ(t, census(t, out), before)
			for _, kind := range []string{"p", "s", "c", "b"} {
				shell(t, h.dir, `test -z "$(find . -type `+kind+`)"`)
			}
		})
	}
}

// TestCommitMakesNoDevices: a device that is no whiteout stays in the layer, also
// one of a number that is.
func TestCommitMakesNoDevices(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Absent(t, "root", "only root makes devices; an ordinary user's layer has none")
	}
	h := newHost(t, manyFiles, ":")
	shell(t, filepath.Join(h.layer.Path, "0", "upper"), `mknod null c 1 3; mknod disk b 7 0; mknod file c 1 3`)
	res, err := h.layer.Commit(CommitOptions{SkipConflicts: true, Executable: true, SetID: true})
	if err != nil || len(res.Done) != 0 || len(res.Refused) != 3 {
		t.Errorf("%v, done %v, refused %v", err, res.Done, res.Refused)
	}
	shell(t, h.dir, `test -z "$(find . -type c -o -type b)" && test "$(cat file)" = one`)
}

// TestCommitOfADeepTree: paths longer than Linux takes at once.
func TestCommitOfADeepTree(t *testing.T) {
	h := newHost(t, `:`, `python3 -c '
import os
for i in range(100): os.mkdir("d" * 200); os.chdir("d" * 200)
open("file", "w").write("deep")'`)
	res, err := h.layer.Commit(CommitOptions{})
	if err != nil || len(res.Done) != 101 || !res.Removed {
		t.Fatalf("%v, %d done, %v", err, len(res.Done), res.Refused)
	}
	dir, err := hostDir(h.dir + strings.Repeat("/"+strings.Repeat("d", 200), 100))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	file, err := openRegular(dir, "file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	body := make([]byte, 10)
	if n, _ := file.Read(body); string(body[:n]) != "deep" {
		t.Errorf("the file has %q", body[:n])
	}
}

// TestCommitOfATreeThatIsTooDeep: what is deeper than is looked at is told, and
// nothing is done by halves.
func TestCommitOfATreeThatIsTooDeep(t *testing.T) {
	h := newHost(t, `:`, `printf x >file; mkdir -p d`+strings.Repeat("/d", 300))
	res, err := h.layer.Commit(CommitOptions{})
	if !errors.Is(err, ErrRefused) || len(res.Done) != 0 {
		t.Errorf("%v, %v", err, res.Done)
	}
	if _, err := h.layer.Commit(CommitOptions{Paths: []string{h.dir + "/file"}}); err != nil {
		t.Error(err)
	}
}

// TestCommitCarriesAttributes: the user's own and access lists, and no others.
func TestCommitCarriesAttributes(t *testing.T) {
	const acl = `import os, struct
entry = lambda tag, perm, who=0xffffffff: struct.pack("<HHI", tag, perm, who)
os.setxattr("file", "system.posix_acl_access", struct.pack("<I", 2) + entry(1, 6) + entry(4, 4) + entry(8, 6, 0) + entry(16, 6) + entry(32, 0))
os.setxattr("new", "user.note", b"\x00bytes")
os.setxattr("tool", "user.note", b"only this")
os.removexattr("old", "user.note")
os.setxattr("tree", "user.note", b"dir")`
	if os.Geteuid() == 0 {
		h := newHost(t, manyFiles+`printf x >old; python3 -c 'import os; os.setxattr("old", "user.note", b"x"); os.setxattr("file", "user.kept", b"x")'`,
			"printf n >new; python3 -c '"+acl+"'")
		if _, err := h.layer.Commit(CommitOptions{}); err != nil {
			t.Fatal(err)
		}
		h.is(t, h.saw)
		if !strings.Contains(h.saw, "user.note") || !strings.Contains(h.saw, "posix_acl_access") {
			t.Errorf("control: the session saw no attributes:\n%s", h.saw)
		}
		return
	}
	h := newHost(t, manyFiles, `printf n >new; python3 -c 'import os; os.setxattr("new", "user.note", b"x")'`)
	if _, err := h.layer.Commit(CommitOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is(t, h.saw)
}

// TestCommitDropsSetIDBits: unless they are asked for, or the host's file has them.
func TestCommitDropsSetIDBits(t *testing.T) {
	const change = `printf x >new; chmod 6755 new; touch -d @1 had; printf y >>grown; chmod 4755 grown`
	const fill = `printf x >had; chmod 4755 had; printf x >grown; chmod 4755 grown`
	for _, keep := range []bool{false, true} {
		h := newHost(t, fill, change)
		res, err := h.layer.Commit(CommitOptions{SetID: keep})
		if err != nil || !res.Removed {
			t.Fatalf("%v, %+v", err, res)
		}
		for name, want := range map[string]bool{"new": keep, "grown": keep, "had": true} {
			info, err := os.Stat(h.dir + "/" + name)
			if err != nil || (info.Mode()&os.ModeSetuid != 0) != want {
				t.Errorf("keeping %v: %s is %v, %v", keep, name, info.Mode(), err)
			}
		}
		if (len(res.Notes) == 2) == keep {
			t.Errorf("keeping %v, it notes %v", keep, res.Notes)
		}
	}
}

// executables come to lie where the host runs them: by name, by a link or a new
// name of a directory above.
var executables = []struct{ name, fill, change, path string }{
	{"a hook", `mkdir -p r/.git/hooks`, `printf x >r/.git/hooks/pre-commit`, "r/.git/hooks/pre-commit"},
	{"a .pth file", ``, `printf x >a.pth`, "a.pth"},
	{"a link in its place", ``, `ln -s /var/tmp/x .bashrc`, ".bashrc"},
	{"a link in the place of the directory", `mkdir -p r/.git`, `ln -s /var/tmp/hooks r/.git/hooks`, "r/.git/hooks"},
	{"a link in the place of one above", `mkdir r`, `ln -s /var/tmp/git r/.git`, "r/.git"},
	{"a link above a submodule's hooks", `mkdir -p r/.git`, `ln -s /var/tmp/modules r/.git/modules`, "r/.git/modules"},
	{"a file that leads to a repository", `mkdir r`, `printf 'gitdir: /var/tmp/x' >r/.git`, "r/.git"},
	{"directories with the names of such files", ``, `mkdir -p r/.git r/Makefile a.pth; printf x >r/Makefile/notes; printf x >a.pth/libc.so.6`, "a.pth/libc.so.6"},
	{"a file renamed there", `mkdir -p bin; printf x >data`, `mv data bin/data`, "bin/data"},
}

var rootExecutables = []struct{ name, fill, change, path string }{
	{"a directory renamed to it", `mkdir -p r/.git plain; printf x >plain/pre-commit`, `mv plain r/.git/hooks`, "r/.git/hooks"},
	{"a directory with a link to it renamed", `mkdir -p r plain; ln -s /var/tmp/x plain/hooks`, `mv plain r/.git`, "r/.git"},
	{"a directory renamed above it, beside one that is not", `mkdir -p r plain/modules/a/hooks other; printf x >plain/modules/a/hooks/x; printf x >other/x`, `mv plain r/.git; mv other lib`, "r/.git"},
	{"a directory renamed above it", `mkdir -p r plain/hooks; printf x >plain/hooks/pre-commit`, `mv plain r/.git`, "r/.git"},
}

// TestCommitRefusesWhatTheHostWouldRun: by name, unless it is asked for.
func TestCommitRefusesWhatTheHostWouldRun(t *testing.T) {
	all := executables
	if os.Geteuid() == 0 {
		all = append(all, rootExecutables...)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, c.fill, c.change+"; printf x >innocent")
			res, err := h.layer.Commit(CommitOptions{})
			if !errors.Is(err, ErrRefused) || len(res.Refused) != 1 || res.Refused[0].Path != h.dir+"/"+c.path || !strings.Contains(res.Refused[0].Why, "--executable") {
				t.Fatalf("%v, refused %v", err, res.Refused)
			}
			if _, err := h.layer.Commit(CommitOptions{Executable: true}); err != nil {
				t.Fatal(err)
			}
			h.is(t, h.saw)
		})
	}
}

// TestCommitNeverCarriesWhatARuleRefuses: whichever options are given, also by a new
// name or a link above the path.
func TestCommitNeverCarriesWhatARuleRefuses(t *testing.T) {
	for _, c := range []struct{ name, fill, change string }{
		{"a file", ``, `printf x >secret`},
		{"below", ``, `mkdir secret; printf x >secret/x`},
		{"a link above", ``, `ln -s /tmp up`},
		{"a file renamed away", `printf x >secret`, `mv secret other`},
		{"removed", `printf x >secret`, `rm secret`},
		{"removed with what is above", `mkdir up; printf x >up/secret`, `rm -r up`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, c.fill, c.change)
			h.layer.Refused = []Refusal{{h.dir + "/secret", "r", "why"}, {h.dir + "/up/secret", "r", "why"}}
			before := census(t, h.dir)
			res, err := h.layer.Commit(CommitOptions{Executable: true, SetID: true, SkipConflicts: true})
			if err != nil || len(res.Done) != 0 || len(res.Refused) == 0 {
				t.Errorf("%v, done %v, refused %v", err, res.Done, res.Refused)
			}
			differ(t, census(t, h.dir), before)
		})
	}
	h := newHost(t, ``, `mkdir up; printf x >up/fine`)
	h.layer.Refused = []Refusal{{h.dir + "/up/secret", "r", "why"}}
	if _, err := h.layer.Commit(CommitOptions{}); err != nil {
		t.Errorf("a directory above a refused path could not be made: %v", err)
	}
}

// TestCommitGivesFilesToTheSessionsOwner: what a session of root's has made.
func TestCommitGivesFilesToTheSessionsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Absent(t, "root", "an ordinary user's files are his own")
	}
	h := newHost(t, `printf x >roots; printf x >moved`, `printf n >new; mkdir dir; printf n >dir/in; ln -s x link; printf y >>roots; mv moved there`)
	h.layer.Owner = &Owner{4242, 2424}
	if _, err := h.layer.Commit(CommitOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"new": 4242, "dir": 4242, "dir/in": 4242, "link": 4242, "roots": 0, "there": 0} {
		var s unix.Stat_t
		if err := unix.Lstat(h.dir+"/"+name, &s); err != nil || s.Uid != want {
			t.Errorf("%s belongs to %d, want %d: %v", name, s.Uid, want, err)
		}
	}
}

// TestCommitOfALayerInUse waits for nobody and changes nothing.
func TestCommitOfALayerInUse(t *testing.T) {
	h := newHost(t, manyFiles, `printf x >new`)
	if err := h.layer.Hold(); err != nil {
		t.Fatal(err)
	}
	defer h.layer.Release()
	if _, err := h.reopened(t).Commit(CommitOptions{}); !errors.Is(err, ErrInUse) {
		t.Errorf("%v", err)
	}
}

// TestCommitDry tells what a commit does, and does nothing.
func TestCommitDry(t *testing.T) {
	h := newHost(t, manyFiles, scripts[0].change)
	before := census(t, h.dir)
	dry, err := h.layer.Commit(CommitOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	differ(t, census(t, h.dir), before)
	real, err := h.layer.Commit(CommitOptions{})
	if err != nil || len(real.Done) != len(dry.Done) {
		t.Errorf("%v: %d done, %d told", err, len(real.Done), len(dry.Done))
	}
}
