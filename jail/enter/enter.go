// Package enter puts a tree into a jail that runs already: a process of a moment
// enters the jail's namespaces, attaches the tree, looks at what is there now, and ends.
//
//	tree, err := enter.Copy("/srv/s1", unix.MOUNT_ATTR_NOSUID)
//	found, err := enter.Attach(enter.Jail{PIDFD: fd, Users: true}, tree, "/srv/s1")
//
// # Limitations
//
// The process shares the caller's memory and descriptors, and the calling thread waits
// for its end (clone(2), CLONE_VM and CLONE_VFORK): a Go program has many threads and
// cannot enter a user namespace itself. It runs no Go code, and nothing of the jail. Linux
// follows paths for it with the rights of the launcher's user; no part of a path may be a
// symbolic link, and what lies in the jail's tree decides where the path leads. Call
// before foreign code runs there.
package enter

/*
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/types.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL_open_tree 428
#define CALL_move_mount 429
#define CALL_openat2 437
#define CALL_mount_setattr 442

struct how { uint64_t flags, mode, resolve; };
struct attr { uint64_t set, clr, propagation, userns; };

struct job {
	int pidfd, namespaces, tree;
	const char *path;
	uint64_t attr;
	int fail;  // the number of the step that fails, in tests; 0 for none
	int step, err; // the step that failed, and why
	uint64_t flags;
	int same;
};

static char stack[65536] __attribute__((aligned(16)));

static int step(struct job *j, int number) {
	j->step = number;
	if (j->fail != number)
		return 0;
	j->err = EIO;
	return -1;
}

static int failed(struct job *j) {
	j->err = errno;
	return 1;
}

static int place(const char *path) {
	struct how how = { O_PATH | O_DIRECTORY | O_CLOEXEC, 0, 0x04 }; // RESOLVE_NO_SYMLINKS
	return syscall(CALL_openat2, AT_FDCWD, path, &how, sizeof how);
}

// attach_tree must call nothing that needs a thread of its own.
static int attach_tree(void *arg) {
	struct job *j = arg;
	if (step(j, 1))
		return 1;
	if (setns(j->pidfd, j->namespaces) < 0)
		return failed(j);
	if (step(j, 2))
		return 1;
	int at = place(j->path);
	if (at < 0)
		return failed(j);
	if (step(j, 3)) {
		close(at);
		return 1;
	}
	// Both ends are descriptors: F_EMPTY_PATH, T_EMPTY_PATH.
	int moved = syscall(CALL_move_mount, j->tree, "", at, "", 0x04 | 0x40);
	if (moved < 0)
		j->err = errno;
	close(at);
	if (moved < 0)
		return 1;
	if (step(j, 4))
		return 1;
	if ((at = place(j->path)) < 0)
		return failed(j);
	struct stat want, got;
	struct statfs fs;
	int bad = fstat(j->tree, &want) < 0 || fstat(at, &got) < 0 || fstatfs(at, &fs) < 0;
	if (bad)
		j->err = errno;
	close(at);
	if (bad)
		return 1;
	if (step(j, 5))
		return 1;
	j->flags = fs.f_flags;
	j->same = want.st_dev == got.st_dev && want.st_ino == got.st_ino;
	j->step = 0;
	return 0;
}

// copy_tree runs in a user and a mount namespace of its own, in which it may copy.
static int copy_tree(void *arg) {
	struct job *j = arg;
	if (step(j, 1))
		return 1;
	int at = place(j->path);
	if (at < 0)
		return failed(j);
	if (step(j, 2)) {
		close(at);
		return 1;
	}
	// OPEN_TREE_CLONE
	j->tree = syscall(CALL_open_tree, at, "", 1 | O_CLOEXEC | AT_EMPTY_PATH | 0x8000);
	if (j->tree < 0)
		j->err = errno;
	close(at);
	if (j->tree < 0)
		return 1;
	struct attr attr = { j->attr, 0, 1 << 18, 0 }; // MS_PRIVATE
	if (step(j, 3) || syscall(CALL_mount_setattr, j->tree, "", AT_EMPTY_PATH | 0x8000, &attr, sizeof attr) < 0) {
		if (!j->err)
			j->err = errno;
		close(j->tree);
		return 1;
	}
	j->step = 0;
	return 0;
}

// run starts the process and waits for it; the step that failed, -1 when there was no
// process, 0 when all went well.
static int run(int (*f)(void *), struct job *j, int namespaces) {
	sigset_t all, before;
	sigfillset(&all);
	// The child takes the mask over: Go's handlers must not run on this stack.
	pthread_sigmask(SIG_BLOCK, &all, &before);
	j->err = 0;
	int pid = clone(f, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD | namespaces, j);
	if (pid < 0) {
		j->err = errno;
		j->step = -1;
	} else {
		int status;
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		if (j->step == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
			j->step = -1;
			j->err = ECANCELED;
		} else if (WIFSIGNALED(status) && !j->err) {
			j->err = ECANCELED;
		}
	}
	pthread_sigmask(SIG_SETMASK, &before, 0);
	return j->step;
}

static int run_attach(struct job *j) { return run(attach_tree, j, 0); }
static int run_copy(struct job *j) { return run(copy_tree, j, CLONE_NEWUSER | CLONE_NEWNS); }
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The stack is one: one process at a time.
var one sync.Mutex

// Fail lets the step with this number fail, for tests; 0 for none. Attach has Steps.
var Fail int

// Steps is how many steps of Attach can fail.
const Steps = 5

// Jail says where to go.
type Jail struct {
	// PIDFD is of a process in the jail's namespaces.
	PIDFD int
	// Users has the user namespace entered too, without which only a privileged
	// launcher may attach.
	Users bool
}

// Found is what stands at the path after the attachment.
type Found struct {
	// Same says that it is the root of the tree that was attached.
	Same bool
	// Flags are those of its mount (ST_*, statfs(2)).
	Flags uint64
}

var attachSteps = [...]string{"", "setns", "openat2", "move_mount", "statfs", "compare"}
var copySteps = [...]string{"", "openat2", "open_tree", "mount_setattr"}

// Attach puts the tree at a path of the jail, and tells what is there then. The
// caller keeps the tree's descriptor. Errors are syscall.Errno, wrapped.
func Attach(to Jail, tree int, path string) (Found, error) {
	name, err := syscall.BytePtrFromString(path)
	if err != nil {
		return Found{}, fmt.Errorf("attach %s: %w", path, err)
	}
	one.Lock()
	defer one.Unlock()
	j := C.struct_job{pidfd: C.int(to.PIDFD), namespaces: unix.CLONE_NEWNS, tree: C.int(tree), fail: C.int(Fail)}
	if to.Users {
		j.namespaces |= unix.CLONE_NEWUSER
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(name)
	j.path = (*C.char)(unsafe.Pointer(name))
	if at := C.run_attach(&j); at != 0 {
		return Found{}, failure(attachSteps[:], int(at), path, int(j.err))
	}
	return Found{Same: j.same != 0, Flags: uint64(j.flags)}, nil
}

// Copy makes a detached copy of the tree at a path, with MOUNT_ATTR_* flags added, as
// an ordinary user may. The caller closes it. Errors are syscall.Errno, wrapped.
func Copy(path string, attr uint64) (int, error) {
	name, err := syscall.BytePtrFromString(path)
	if err != nil {
		return -1, fmt.Errorf("copy %s: %w", path, err)
	}
	one.Lock()
	defer one.Unlock()
	j := C.struct_job{attr: C.uint64_t(attr)}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(name)
	j.path = (*C.char)(unsafe.Pointer(name))
	if at := C.run_copy(&j); at != 0 {
		return -1, failure(copySteps[:], int(at), path, int(j.err))
	}
	return int(j.tree), nil
}

func failure(steps []string, at int, path string, errno int) error {
	call := "clone"
	if at > 0 && at < len(steps) {
		call = steps[at]
	}
	return fmt.Errorf("%s %s: %w", call, path, syscall.Errno(errno))
}
