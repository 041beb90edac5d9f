package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cellblock/kernel"
	"cellblock/kernel/shadow"
	"cellblock/policy"
)

// census describes every file below some directories: kind, mode, owner, size, both
// times that a change moves, content or target. Two that are equal are of a tree
// that nobody has touched.
func census(t *testing.T, roots ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				if os.IsPermission(err) {
					return fs.SkipDir
				}
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			s := info.Sys().(*syscall.Stat_t)
			text := fmt.Sprintf("%v %d:%d %d bytes, inode %d, links %d, mtime %d, ctime %d", info.Mode(), s.Uid, s.Gid, s.Size, s.Ino, s.Nlink, s.Mtim.Nano(), s.Ctim.Nano())
			switch {
			case info.Mode().IsRegular():
				if body, err := os.ReadFile(path); err == nil {
					sum := sha256.Sum256(body)
					text += " " + hex.EncodeToString(sum[:])
				}
			case info.Mode()&fs.ModeSymlink != 0:
				target, _ := os.Readlink(path)
				text += " -> " + target
			}
			all[path] = text
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func sameCensus(t *testing.T, before, after map[string]string) {
	t.Helper()
	for path, was := range before {
		if is := after[path]; is != was {
			t.Errorf("%s on the host was %s, and is %q", path, was, is)
		}
	}
	for path, is := range after {
		if _, ok := before[path]; !ok {
			t.Errorf("%s is new on the host: %s", path, is)
		}
	}
}

// victims makes a tree of the host's for sessions to change.
func victims(t *testing.T) string {
	t.Helper()
	dir := newDirIn(t, "/var/tmp")
	write(t, dir+"/file", "from the host\n")
	write(t, dir+"/doomed", "soon gone\n")
	write(t, dir+"/before", "renamed soon\n")
	write(t, dir+"/tool", "#!/bin/sh\n")
	write(t, dir+"/tree/a/deep", "deep\n")
	write(t, dir+"/tree/b", "b\n")
	write(t, dir+"/fresh/old1", "1\n")
	write(t, dir+"/fresh/old2", "2\n")
	symlink(t, "file", dir+"/link")
	symlink(t, dir+"/tree", dir+"/out")
	return dir
}

// layerOf opens the layer of a session in mode shadow.
func layerOf(t *testing.T, state, name string) *shadow.Layer {
	t.Helper()
	l, err := shadow.Open(filepath.Join(state, "shadow"), name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// changes is a diff as lines, with V for the directory of the victims.
func changes(t *testing.T, l *shadow.Layer, dir string) string {
	t.Helper()
	d, err := l.Diff()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range d.Changes {
		lines = append(lines, strings.ReplaceAll(c.String(), dir, "V"))
	}
	for _, u := range d.Unread {
		lines = append(lines, "unread "+u.String())
	}
	return strings.Join(lines, "\n")
}

const ravage = `
import os, shutil, subprocess
V = %q
def sh(line):
    return subprocess.run(line, shell=True, cwd=V, capture_output=True, text=True, check=True).stdout
open(V + "/file", "a").write("and the session\n")
open(V + "/new", "w").write("new\n")
os.remove(V + "/doomed")
os.rename(V + "/before", V + "/after")
os.chmod(V + "/tool", 0o750)
os.utime(V + "/tree/b", (1, 1))
sh("mkdir -p made/below && echo child > made/below/file && ln -s /etc/passwd made/link && ln new hard && mkfifo pipe")
sh("rm -r fresh && mkdir fresh && echo again > fresh/old1")
os.remove(V + "/link"); os.mkdir(V + "/link")
open(V + "/out/a/deep", "w").write("through a link\n")
`

// TestShadowLeavesTheHostAsItIs: what a session does to the host's files it sees
// itself, from every process, in each later cell and generation; the host's tree is
// the same in every respect; and the diff tells exactly what was done.
func TestShadowLeavesTheHostAsItIs(t *testing.T) {
	require(t, needOverlay)
	dir, state, home := victims(t), newDirIn(t, "/var/tmp"), newDirIn(t, "/var/tmp")
	roots := []string{"/etc", dir}
	before := census(t, roots...)
	s := open(t, shadowIn(state), at(home))
	s.ok(fmt.Sprintf(ravage, dir))
	look := func(when string) {
		t.Helper()
		s.shows(fmt.Sprintf(`import os, subprocess
V = %q
(open(V + "/file").read(), subprocess.run(["cat", V + "/made/below/file"], capture_output=True, text=True).stdout, sorted(os.listdir(V)),
 os.listdir(V + "/fresh"), oct(os.stat(V + "/tool").st_mode), os.stat(V + "/tree/b").st_mtime, os.path.isdir(V + "/link"), open(V + "/tree/a/deep").read())`, dir),
			`('from the host\nand the session\n', 'child\n', ['after', 'file', 'fresh', 'hard', 'link', 'made', 'new', 'out', 'pipe', 'tool', 'tree'], ['old1'], '0o100750', 1.0, True, 'through a link\n')`)
		if t.Failed() {
			t.Fatal(when)
		}
	}
	look("in the next cell")
	s.reset()
	look("after a reset")
	if r := s.run("import os; os._exit(3)"); !r.IsError {
		t.Error("a worker that ended is no error")
	}
	look("in the next generation")
	if os.Geteuid() == 0 {
		s.ok(`open("/etc/cellblock-shadow-test", "w").write("x"); os.remove("/etc/issue"); os.chmod("/etc", 0o700); os.rename("/etc/skel", "/etc/skel2")`)
	}
	s.ok(`open("real", "w").write("on the host")`)
	sameCensus(t, before, census(t, roots...))
	if got := s.read("real"); got != "on the host" {
		t.Errorf("the session directory has %q", got)
	}
	id := s.kernel.Info().Layer
	if err := s.kernel.Close(); err != nil {
		t.Fatal(err)
	}
	sameCensus(t, before, census(t, roots...))
	want := `renamed  V/after from V/before
changed  V/file (14 -> 30 bytes, time)
changed  V/fresh/old1 (2 -> 6 bytes, time)
deleted  V/fresh/old2
created  V/hard (4 bytes)
replaced V/link (directory, was link)
created  V/made (directory)
created  V/made/below (directory)
created  V/made/below/file (6 bytes)
created  V/made/link (link to /etc/passwd)
created  V/new (4 bytes)
created  V/pipe (fifo)  conflict: a fifo is not carried over
changed  V/tool (mode 0644 -> 0750)
changed  V/tree/a/deep (5 -> 15 bytes, time)
changed  V/tree/b (time)
deleted  V/doomed`
	got := changes(t, layerOf(t, state, id), dir)
	for _, line := range strings.Split(want, "\n") {
		contains(t, "the diff", got+"\n", line+"\n")
	}
	if os.Geteuid() == 0 {
		for _, line := range []string{"created  /etc/cellblock-shadow-test (1 bytes)", "deleted  /etc/issue", "changed  /etc (directory, mode 0755 -> 0700)", "renamed  /etc/skel2 from /etc/skel (directory)"} {
			contains(t, "the diff", got, line)
		}
	} else if got, want := len(strings.Split(got, "\n")), len(strings.Split(want, "\n")); got != want {
		t.Errorf("the diff has %d lines, want %d", got, want)
	}
}

// TestShadowSaysWhatStays: each change is told as one that would be denied, with
// what becomes of it, and a layer in which nothing differs is not kept.
func TestShadowSaysWhatStays(t *testing.T) {
	require(t, needOverlay)
	dir, state := victims(t), newDirIn(t, "/var/tmp")
	s := open(t, shadowIn(state), at(newDirIn(t, "/var/tmp")))
	r := s.ok(fmt.Sprintf(`open(%q, "w").write("x")`, dir+"/new"))
	id := s.kernel.Info().Layer
	found := false
	var got kernel.Result
	if err := json.Unmarshal(r.raw, &got); err != nil {
		t.Fatal(err)
	}
	for _, v := range got.Details.Policy.Violations {
		found = found || v.Path == dir+"/new" && v.Decision == "would be denied"
	}
	if !found {
		t.Errorf("the reply does not tell the change: %s", r)
	}
	contains(t, "the reply", string(r.raw), `"note":"the host is untouched: what became of it is in layer `+id+`"`)
	contains(t, "the reply", string(r.raw), `"layer":"`+id+`"`)
	s.ok(fmt.Sprintf(`os.remove(%q)`, dir+"/new"))
	if err := s.kernel.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := shadow.List(filepath.Join(state, "shadow")); err != nil || len(left) != 0 {
		t.Errorf("a layer without changes was kept: %v, %v", left, err)
	}
}

// TestShadowLayersArePrivate: two sessions change one file, and neither sees the
// other's change, or the layers themselves.
func TestShadowLayersArePrivate(t *testing.T) {
	require(t, needOverlay)
	dir, state := victims(t), newDirIn(t, "/var/tmp")
	a, b := open(t, shadowIn(state), at(newDirIn(t, "/var/tmp"))), open(t, shadowIn(state), at(newDirIn(t, "/var/tmp")))
	a.ok(fmt.Sprintf(`open(%q, "w").write("a")`, dir+"/file"))
	b.ok(fmt.Sprintf(`open(%q, "a").write("b")`, dir+"/file"))
	a.shows(fmt.Sprintf(`open(%q).read()`, dir+"/file"), `'a'`)
	b.shows(fmt.Sprintf(`open(%q).read()`, dir+"/file"), `'from the host\nb'`)
	b.raises(fmt.Sprintf(`import os; os.listdir(%q)`, state), "PermissionError")
	if a.kernel.Info().Layer == b.kernel.Info().Layer {
		t.Error("two sessions have one layer")
	}
	if err := layerOf(t, state, a.kernel.Info().Layer).Discard(nil); err == nil {
		t.Error("the layer of a live session was dropped")
	}
}

// TestShadowKeepsWhatIsEnforced: secrets stay covered, and a rule that is enforced
// in every mode refuses in this one; where there is nothing to refuse with, what a
// session makes there is never carried over.
func TestShadowKeepsWhatIsEnforced(t *testing.T) {
	require(t, needOverlay)
	dir, state := victims(t), newDirIn(t, "/var/tmp")
	doc, err := policy.Parse("test.yaml", []byte(fmt.Sprintf(`version: 1
name: test
fs:
  rules:
    - {id: session, path: "${session}", access: [write], effect: allow, reason: "own"}
    - {id: inside, path: "${session}/kept/", access: [write], effect: deny, reason: "not even here"}
    - {id: secret, path: "%[1]s/tree/", access: [read], effect: deny, mode: enforce, reason: "secret"}
    - {id: fixed, path: "%[1]s/file", access: [write], effect: deny, mode: enforce, reason: "fixed"}
    - {id: never, path: "%[1]s/absent", access: [write], effect: deny, mode: enforce, reason: "never"}
    - {id: soft, path: "%[1]s/tool", access: [write], effect: deny, reason: "soft"}
`, dir)))
	if err != nil {
		t.Fatal(err)
	}
	home := newDirIn(t, "/var/tmp")
	write(t, home+"/kept/file", "kept")
	s := open(t, shadowIn(state), at(home), func(o *kernel.Options) { o.Policy = &doc })
	before := census(t, dir)
	s.raises(fmt.Sprintf(`import os; os.listdir(%q)`, dir+"/tree"), "PermissionError")
	s.raises(fmt.Sprintf(`open(%q, "w")`, dir+"/file"), "OSError")
	s.raises(`open("kept/file", "w")`, "OSError")
	s.ok(fmt.Sprintf(`open(%q, "w").write("x")`, dir+"/tool"))
	s.ok(fmt.Sprintf(`open(%q, "w").write("x")`, dir+"/absent"))
	id := s.kernel.Info().Layer
	s.kernel.Close()
	sameCensus(t, before, census(t, dir))
	got := changes(t, layerOf(t, state, id), dir)
	contains(t, "the diff", got, "created  V/absent (1 bytes)  conflict: rule never refuses it: never")
	contains(t, "the diff", got, "changed  V/tool (10 -> 1 bytes")
	lacks(t, "the diff", got, "V/file")
}
