package shadow

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cellblock/integration/need"
)

// host is a directory of the host with a layer over it, into which a script has
// worked through a real overlayfs.
type host struct {
	dir, layers string
	layer       *Layer
	saw         string // the directory as the script has left it in its view
}

// newHost fills a directory by one script, and has a second one change it through
// an overlay. Both run in the directory. As root directories are renamed by mark;
// an ordinary user's overlay lies in a user namespace, where they are copied.
func newHost(t *testing.T, fill, change string) *host {
	t.Helper()
	base := newDir(t)
	h := &host{dir: base + "/host", layers: base + "/layers"}
	if err := os.Mkdir(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	shell(t, h.dir, fill)
	layer, err := Create(h.layers, Meta{Session: "s", Trusted: os.Geteuid() == 0}, []string{h.dir})
	if err != nil {
		t.Fatal(err)
	}
	h.layer = layer
	if err := h.layer.Prepare(); err != nil {
		t.Fatal(err)
	}
	h.through(t, change)
	h.layer.Release()
	return h
}

// newDir is a directory whose name can stand among the options of a mount. It lies
// in memory where that is possible: most of what a commit waits for is the disk.
// SHADOW_TEST_DIR names another place, for another file system.
func newDir(t *testing.T) string {
	t.Helper()
	parent := os.Getenv("SHADOW_TEST_DIR")
	if parent == "" && unix.Access("/dev/shm", unix.W_OK|unix.X_OK) == nil {
		parent = "/dev/shm"
	}
	dir, err := os.MkdirTemp(parent, "shadow-test-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// through runs a script in the layer's view of the directory.
func (h *host) through(t *testing.T, script string) {
	t.Helper()
	at := filepath.Join(h.layer.Path, "0")
	merged := newDir(t)
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work,metacopy=off,index=off", h.dir, at, at)
	args := []string{"--mount"}
	if os.Geteuid() == 0 {
		options += ",redirect_dir=on"
	} else {
		options += ",userxattr"
		args = []string{"--user", "--map-root-user", "--mount"}
	}
	cmd := exec.Command("unshare", append(args, "sh", "-ec", `mount -t overlay overlay -o "$1" "$2" && cd "$2" && eval "$3"; exec "$4" -test.run=^TestCensusOfADirectory$ -test.v`,
		"sh", options, merged, script, os.Args[0])...)
	cmd.Env = append(os.Environ(), "SHADOW_CENSUS="+merged)
	needOverlay(t)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the layer's view: %v\n%s", err, out)
	}
	_, text, _ := strings.Cut(string(out), "<<<")
	h.saw, _, _ = strings.Cut(text, ">>>")
}

// needOverlay skips a test where nobody may mount an overlay in a namespace of his
// own, and fails it where JAIL_TEST_REQUIRE says that he may.
func needOverlay(t *testing.T) {
	t.Helper()
	if why := overlayMissing(); why != "" {
		need.Absent(t, "overlay", why)
	}
}

var overlayMissing = sync.OnceValue(func() string {
	args := []string{"--user", "--map-root-user", "--mount"}
	if os.Geteuid() == 0 {
		args = args[2:]
	}
	out, err := exec.Command("unshare", append(args, "sh", "-ec",
		`mount -t tmpfs none /tmp; cd /tmp; mkdir l u w m; mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w m`)...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("mounting one: %v: %s", err, out)
	}
	return ""
})

// TestCensusOfADirectory prints what is in a directory, for a test that runs this
// program where the directory can be seen.
func TestCensusOfADirectory(t *testing.T) {
	if dir := os.Getenv("SHADOW_CENSUS"); dir != "" {
		fmt.Print("<<<" + census(t, dir) + ">>>")
	}
}

// census is what a user can tell of a directory: names, kinds, rights, owners,
// content, attributes, and times of files and links.
func census(t *testing.T, root string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		if errors.Is(err, syscall.ENAMETOOLONG) {
			return nil // a test of deep trees looks itself
		}
		if err != nil {
			return err
		}
		info, err := os.Lstat(p)
		if errors.Is(err, syscall.ENAMETOOLONG) {
			return fs.SkipDir
		}
		if err != nil {
			return err
		}
		s := info.Sys().(*syscall.Stat_t)
		line := fmt.Sprintf("%q %v %d:%d", strings.TrimPrefix(p, root), info.Mode(), s.Uid, s.Gid)
		switch {
		case info.Mode().IsRegular():
			body, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x %d", len(body), sha256.Sum256(body), s.Mtim.Nano())
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(p)
			line += fmt.Sprintf(" -> %q %d", target, s.Mtim.Nano())
		}
		dir, err := hostDir(filepath.Dir(p))
		if err != nil {
			return err
		}
		defer syscall.Close(dir)
		own, err := attributes(dir, filepath.Base(p))
		if err != nil {
			return err
		}
		var keys []string
		for key, value := range own {
			keys = append(keys, fmt.Sprintf(" %s=%q", key, value))
		}
		sort.Strings(keys)
		lines = append(lines, line+strings.Join(keys, ""))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func shell(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
}

// is fails unless the host's directory is as a view was.
func (h *host) is(t *testing.T, want string) {
	t.Helper()
	got := census(t, h.dir)
	if os.Geteuid() != 0 {
		got = strings.ReplaceAll(got, fmt.Sprintf(" %d:%d", os.Geteuid(), os.Getegid()), " 0:0")
	}
	differ(t, got, want)
}

func differ(t *testing.T, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	has := func(text, line string) bool { return strings.Contains("\n"+text+"\n", "\n"+line+"\n") }
	for _, line := range strings.Split(want, "\n") {
		if !has(got, line) {
			t.Errorf("the host lacks  %s", line)
		}
	}
	for _, line := range strings.Split(got, "\n") {
		if !has(want, line) {
			t.Errorf("the host has    %s", line)
		}
	}
}

// reopened is the layer as the next command finds it; nil when it is gone.
func (h *host) reopened(t *testing.T) *Layer {
	t.Helper()
	l, err := Open(h.layers, "last")
	if errors.Is(err, ErrNone) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// asides lists what commits have left beside files.
func (h *host) asides(t *testing.T) (all []string) {
	t.Helper()
	_ = filepath.WalkDir(h.dir, func(p string, _ fs.DirEntry, _ error) error {
		if strings.HasPrefix(filepath.Base(p), asidePrefix) {
			all = append(all, p)
		}
		return nil
	})
	return all
}
