package kernel

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/policy"
)

// A stub is an empty file or directory that stands on the host where an enforced
// rule denies what is not there, for the life of a generation: a mount needs
// something to lie on. What of it is on the host is told by its time stamp, so
// that nothing that somebody else made is taken for one. Who uses a stub holds a
// shared lock on it, and it is removed by who gets the exclusive one. Each use is
// recorded in the generation's own directory before the stub is made, so that the
// sweep of a later start finds what a killed launcher left.

// stubTime marks a stub: the moment before Linux counts from.
var stubTime = time.Unix(-1, 987654321)

const stubRecords = ".stubs"

// stubRecord is a use of a stub. Made are the directories above it that came with
// it, the upper first.
type stubRecord struct {
	Path string      `json:"path"`
	Kind policy.Stub `json:"kind"`
	Made []string    `json:"made,omitempty"`
	// Draft is the name under which it was made.
	Draft string `json:"draft"`
}

type heldStub struct {
	stubRecord
	file *os.File
}

// isStub reports whether a file of the host is a stub.
func isStub(info fs.FileInfo) bool {
	return info.ModTime().Equal(stubTime) && (info.IsDir() || info.Mode().IsRegular() && info.Size() == 0)
}

// hold sees to it that every stub that the rules ask for is there and stays.
func (d *tempDir) hold(rules []policy.Rule) error {
	for _, r := range rules {
		if r.Stub == "" || slices.ContainsFunc(d.stubs, func(h heldStub) bool { return h.Path == r.Path }) {
			continue
		}
		record := stubRecord{Path: r.Path, Kind: r.Stub, Made: absentAbove(r.Path),
			Draft: filepath.Join(filepath.Dir(r.Path), "."+filepath.Base(d.path)+".stub")}
		if err := d.record(record); err != nil {
			return fmt.Errorf("stub %s: %w", r.Path, err)
		}
		file, err := makeStub(record)
		d.stubs = append(d.stubs, heldStub{record, file})
		if err != nil && outOfReach(r.Path, err) {
			d.needless = append(d.needless, r.Path)
			continue
		}
		if err != nil {
			return fmt.Errorf("stub %s, which rule %s needs to deny what is not there: %w", r.Path, r.ID, err)
		}
	}
	return nil
}

// outOfReach reports whether a stub could not be made where the worker, which has
// the same id and fewer rights, can make nothing either.
func outOfReach(path string, err error) bool {
	if errors.Is(err, syscall.EROFS) {
		return true
	}
	if !errors.Is(err, syscall.EACCES) || os.Geteuid() == 0 {
		return false
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != "/" {
			continue
		}
		if err != nil {
			return errors.Is(err, syscall.EACCES)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		return ok && int(stat.Uid) != os.Geteuid()
	}
}

func (d *tempDir) record(r stubRecord) error {
	file, err := os.OpenFile(filepath.Join(d.path, stubRecords), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = file.Write(append(line, '\n'))
	}
	return errors.Join(err, file.Close())
}

// absentAbove lists the directories above a path that are not there, or that came
// with a stub, the upper first.
func absentAbove(path string) []string {
	var out []string
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		if err == nil && !isStub(info) {
			break
		}
		out = append(out, dir)
	}
	slices.Reverse(out)
	return out
}

// directory opens a directory by a path without symbolic links: the owner of a
// session directory, or another session in it, could exchange one for a link.
func directory(path string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	return unix.Openat2(unix.AT_FDCWD, path, how)
}

func makeStub(r stubRecord) (*os.File, error) {
	for _, dir := range r.Made {
		if err := makeAt(dir, dir, policy.StubDirectory); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	// Somebody who removes it may come in between; nobody does so for long.
	for range 1000 {
		err := makeAt(r.Draft, r.Path, r.Kind)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		file, err := openStub(r.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil && there(file, r.Path) {
			mark(r)
			return file, nil
		}
		file.Close()
		time.Sleep(time.Millisecond)
	}
	return nil, errors.New("somebody holds it locked: end that program, or start again")
}

// makeAt makes an empty file or directory under the name draft, marks it, and
// gives it its own name unless there is something.
func makeAt(draft, path string, kind policy.Stub) error {
	parent, err := directory(filepath.Dir(path))
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(parent)
	from, to := filepath.Base(draft), filepath.Base(path)
	if kind == policy.StubDirectory {
		// A directory that nothing is in yet needs no other name first.
		if err = unix.Mkdirat(parent, to, 0o755); err == nil {
			err = errors.Join(adopt(parent, to), stamp(parent, to))
		}
		return wrap("mkdir", path, err)
	}
	fd, err := unix.Openat(parent, from, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return wrap("create", draft, err)
	}
	unix.Close(fd)
	defer unix.Unlinkat(parent, from, 0)
	if err := errors.Join(adopt(parent, from), stamp(parent, from)); err != nil {
		return wrap("mark", draft, err)
	}
	return wrap("link", path, unix.Linkat(parent, from, parent, to, 0))
}

func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// adopt gives what a privileged launcher made to the owner of the directory.
func adopt(parent int, name string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var owner unix.Stat_t
	if err := unix.Fstat(parent, &owner); err != nil {
		return err
	}
	return unix.Fchownat(parent, name, int(owner.Uid), int(owner.Gid), unix.AT_SYMLINK_NOFOLLOW)
}

func stamp(parent int, name string) error {
	at, err := unix.TimeToTimespec(stubTime)
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(parent, name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
}

// mark stamps the directories that came with a stub: what was made in them since
// has changed their times.
func mark(r stubRecord) {
	for _, dir := range r.Made {
		if parent, err := directory(filepath.Dir(dir)); err == nil {
			_ = stamp(parent, filepath.Base(dir))
			unix.Close(parent)
		}
	}
}

func openStub(path string) (*os.File, error) {
	parent, err := directory(filepath.Dir(path))
	if err != nil {
		return nil, wrap("open", path, err)
	}
	defer unix.Close(parent)
	fd, err := unix.Openat(parent, filepath.Base(path), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, wrap("open", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// there reports whether a path still leads to an open file.
func there(file *os.File, path string) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	its, err := os.Lstat(path)
	return err == nil && os.SameFile(mine, its)
}

// release gives the stubs back, and removes those that nobody else uses.
func (d *tempDir) release() {
	for _, h := range slices.Backward(d.stubs) {
		removeStub(h.stubRecord, h.file)
		if h.file != nil {
			h.file.Close()
		}
	}
	d.stubs = nil
}

// sweepStubs removes what the launcher of a directory left behind.
func sweepStubs(dir string) {
	file, err := os.OpenFile(filepath.Join(dir, stubRecords), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var r stubRecord
		if json.Unmarshal(lines.Bytes(), &r) != nil || !filepath.IsAbs(r.Path) {
			continue // the last line of a launcher that was killed while it wrote
		}
		stub, err := openStub(r.Path)
		if err != nil {
			stub = nil
		}
		removeStub(r, stub)
		if stub != nil {
			stub.Close()
		}
	}
}

// removeStub removes a stub and the directories that came with it, as far as
// they are as they were made and nobody else holds them.
func removeStub(r stubRecord, file *os.File) {
	if file != nil {
		info, err := file.Stat()
		if err == nil && isStub(info) && there(file, r.Path) && unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			unlink(r.Path, info.IsDir())
		}
	}
	if r.Draft != "" {
		if info, err := os.Lstat(r.Draft); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			unlink(r.Draft, false)
		}
	}
	for _, dir := range slices.Backward(r.Made) {
		unlink(dir, true) // not, where something is in it
	}
}

func unlink(path string, dir bool) {
	parent, err := directory(filepath.Dir(path))
	if err != nil {
		return
	}
	defer unix.Close(parent)
	flags := 0
	if dir {
		flags = unix.AT_REMOVEDIR
	}
	_ = unix.Unlinkat(parent, filepath.Base(path), flags)
}
