package kernel

import (
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
// something to lie on. It is told from what somebody else made by marks that it
// has from its first moment: a file by its time, a directory by a sticky bit
// without the rights that give it a meaning. Who uses a stub holds a shared lock
// on it, and it is removed by who gets the exclusive one. Each use is recorded in
// the generation's own directory before the stub is made, so that the sweep of a
// later start finds what a killed launcher left.

// stubTime marks a file: the moment before Linux counts from.
var stubTime = time.Unix(-1, 987654321)

// stubMode marks a directory (mkdir(2): Linux takes the sticky bit).
const stubMode = unix.S_ISVTX | 0o755

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

// isStub reports whether a file of the host is a stub, or a directory that came
// with one.
func isStub(info fs.FileInfo) bool {
	if info.IsDir() {
		return info.Mode()&fs.ModeSticky != 0 && info.Mode().Perm()&0o022 == 0
	}
	return info.Mode().IsRegular() && info.Size() == 0 && info.ModTime().Equal(stubTime)
}

// isBareStub is isStub for one in which nothing has been put since.
func isBareStub(path string, info fs.FileInfo) bool {
	if !isStub(info) || !info.IsDir() {
		return isStub(info)
	}
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
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
	// Another session that ends may remove it in between; none does so for long.
	for range 1000 {
		file, err := tryStub(r)
		switch {
		case err == nil && unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil && there(file, r.Path):
			return file, nil
		case err == nil:
			file.Close()
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		time.Sleep(time.Millisecond)
	}
	return nil, errors.New("somebody holds it locked or takes it away: end that program, or start again")
}

// tryStub makes what is not there, from the upper directories down, and opens it.
func tryStub(r stubRecord) (*os.File, error) {
	for _, dir := range r.Made {
		if err := makeAt(dir, dir, policy.StubDirectory); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	if err := makeAt(r.Draft, r.Path, r.Kind); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return openStub(r.Path)
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
		if err = unix.Mkdirat(parent, to, stubMode); err == nil {
			err = adopt(parent, to)
		}
		return wrap("mkdir", path, err)
	}
	fd, err := unix.Openat(parent, from, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return wrap("create", draft, err)
	}
	unix.Close(fd)
	defer func() { _ = unix.Unlinkat(parent, from, 0) }() // it has its new name, or the error that matters is returned
	at, err := unix.TimeToTimespec(stubTime)
	if err == nil {
		err = errors.Join(adopt(parent, from), unix.UtimesNanoAt(parent, from, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
	}
	if err != nil {
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
