package parity

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// rules are the policy under test. BASE is the test's own directory, and the
// session's is BASE/work.
const rules = `version: 1
name: parity
fs:
  rules:
    - {path: "${session}", access: [write], effect: allow, reason: r}
    - {path: "${session}/locked", access: [write], effect: deny, reason: r}
    - {path: "${session}/hidden", access: [read], effect: deny, reason: r}
    - {path: "${session}/noexec", access: [exec], effect: deny, reason: r}
    - {path: BASE/allowed, access: [write], effect: allow, reason: r}
    - {path: BASE/allowed/locked, access: [write], effect: deny, reason: r}
    - {path: BASE/inbox, access: [create], effect: allow, reason: r}
    - {path: BASE/modify, access: [modify], effect: allow, reason: r}
    - {path: BASE/remove, access: [remove], effect: allow, reason: r}
    - {path: BASE/secret, access: [read], effect: deny, reason: r}
    - {path: BASE/key, access: [read], effect: deny, reason: r}
    - {path: BASE/promoted, access: [write], effect: deny, mode: enforce, reason: r}
    - {path: BASE/opt, access: [exec], effect: deny, reason: r}
net:
  mode: none
`

// place is where operations are done.
type place struct {
	name string
	dir  string // on the host, relative to BASE
	// as is how the session names it, with BASE and the session directory as its
	// working directory; dir's own path where empty.
	as string
	// promoted says that its rule is enforced in every mode.
	promoted bool
}

var places = []place{
	{name: "session", dir: "work/plain"},
	{name: "session by a relative path", dir: "work/relative", as: "relative"},
	{name: "session by dots", dir: "work/dots", as: "../work/./dots"},
	{name: "locked in the session", dir: "work/locked"},
	{name: "deep in what is locked", dir: "work/locked/sub", as: "locked/../locked/sub"},
	{name: "hidden in the session", dir: "work/hidden"},
	{name: "without programs", dir: "work/noexec"},
	{name: "allowed", dir: "allowed"},
	{name: "allowed by a link of the session's", dir: "allowed/linked", as: "work/to-allowed"},
	{name: "locked in what is allowed", dir: "allowed/locked"},
	{name: "where files may be made", dir: "inbox"},
	{name: "where they may be modified", dir: "modify"},
	{name: "where they may be removed", dir: "remove"},
	{name: "secret", dir: "secret"},
	{name: "promoted", dir: "promoted", promoted: true},
	{name: "other programs", dir: "opt"},
	{name: "outside", dir: "outside"},
	{name: "outside by a link of the session's", dir: "outside/linked", as: "work/to-outside"},
	{name: "outside by a link of its own", dir: "outside/real", as: "outside/link"},
	{name: "outside by dots", dir: "outside/dots", as: "work/../outside/dots"},
	{name: "outside by the process's root", dir: "outside/root", as: "/proc/self/root"},
	{name: "outside by the process's directory", dir: "outside/cwd", as: "/proc/self/cwd"},
	{name: "beside, by the session's name", dir: "work-evil"},
}

// listed is a policy that lists what may be read: the session's own, the system's
// programs, and some of the test's directories.
const listed = `version: 1
name: listed
fs:
  defaults:
    read: {effect: deny, reason: r}
  rules:
    - {path: "${session}", access: [write], effect: allow, reason: r}
    - {path: /usr, access: [read], effect: allow, reason: r}
    - {path: /etc, access: [read], effect: allow, reason: r}
    - {path: BASE/shown, access: [read], effect: allow, reason: r}
    - {path: BASE/allowed, access: [write], effect: allow, reason: r}
    - {path: BASE/shown/noexec, access: [exec], effect: deny, reason: r}
net:
  mode: none
`

var listedPlaces = []place{
	{name: "session", dir: "work/plain"},
	{name: "allowed", dir: "allowed"},
	{name: "shown", dir: "shown"},
	{name: "shown without programs", dir: "shown/noexec"},
	{name: "not on the list", dir: "outside"},
	{name: "deep in what is not on the list", dir: "outside/deep/er", as: "work/../outside/./deep/er"},
	{name: "not on the list, by the process's root", dir: "outside/root", as: "/proc/self/root"},
}

// hidden are the directories whose content is kept from being seen.
var hidden = map[string]bool{"work/hidden": true, "secret": true}

// path is the place as the session names it.
func (p place) path(base string) string {
	switch p.as {
	case "":
		return filepath.Join(base, p.dir)
	case "/proc/self/root":
		return "/proc/self/root" + filepath.Join(base, p.dir)
	case "/proc/self/cwd":
		return "/proc/self/cwd/../" + p.dir
	case "relative", "../work/./dots", "locked/../locked/sub":
		return p.as
	}
	return base + "/" + p.as
}

// furnish makes the places, and in each what the rows need: names that begin with
// the row's own.
func furnish(t *testing.T, base string, rows []row) {
	t.Helper()
	for _, p := range slices.Concat(places, listedPlaces) {
		must(t, os.MkdirAll(filepath.Join(base, p.dir), 0o755))
	}
	for _, dir := range []string{"work", "allowed/linked", "outside/linked", "outside/real", "shown"} {
		must(t, os.MkdirAll(filepath.Join(base, dir), 0o755))
	}
	must(t, os.Symlink(filepath.Join(base, "allowed/linked"), base+"/work/to-allowed"))
	must(t, os.Symlink("../outside/linked", base+"/work/to-outside"))
	must(t, os.Symlink("real", base+"/outside/link"))
	must(t, os.WriteFile(base+"/key", []byte("canary"), 0o644))
	program, err := os.ReadFile("/bin/true")
	must(t, err)
	for _, r := range rows {
		name := filepath.Join(base, r.place.dir, r.prefix())
		for _, need := range r.op.needs {
			at := name + need
			switch need {
			case file, other:
				must(t, os.WriteFile(at, []byte("canary of "+need), 0o644))
				must(t, unix.Setxattr(at, "user.old", []byte("1"), 0))
			case directory:
				must(t, os.Mkdir(at, 0o755))
			case link:
				must(t, os.Symlink(filepath.Base(name)+file, at))
			case listener:
				l, err := net.Listen("unix", at)
				must(t, err)
				t.Cleanup(func() { l.Close() })
				must(t, os.Chmod(at, 0o777))
			case pipe:
				must(t, unix.Mkfifo(at, 0o666))
				must(t, os.Chmod(at, 0o666))
			case executable:
				must(t, os.WriteFile(at, program, 0o755))
			}
		}
	}
}

// What a row may need: a file, another, an empty directory, a link to the file, a
// program. fresh is a name that is free.
const (
	file       = ".f"
	other      = ".g"
	directory  = ".d"
	link       = ".l"
	executable = ".x"
	listener   = ".s" // a Unix socket that answers
	pipe       = ".p"
	fresh      = ".n"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// census describes every file below a directory by all that a change moves.
func census(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return err
		}
		text := describe(&s)
		if d.Type().IsRegular() {
			body, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(body[:min(len(body), 64)])
		}
		all[path] = text
		return nil
	}))
	return all
}
