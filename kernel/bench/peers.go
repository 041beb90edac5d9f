package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/jail/seccomp"
	"cellblock/profiles"
)

// oneShot is a program that is started, prints 42 and ends.
type oneShot struct {
	argv  []string
	env   []string
	files []*os.File // descriptors from 3 on, read from their beginning
}

// printed is what every one-shot way runs.
const printed = "print(42)"

func (o oneShot) once(ctx context.Context) (float64, error) {
	for _, f := range o.files {
		if _, err := f.Seek(0, 0); err != nil {
			return 0, err
		}
	}
	cmd := exec.CommandContext(ctx, o.argv[0], o.argv[1:]...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &said, o.files
	if o.env != nil {
		cmd.Env = append(os.Environ(), o.env...)
	}
	begin := time.Now()
	err := cmd.Run()
	took := time.Since(begin)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", o.argv[0], err, lastLine(said.Bytes()))
	}
	if out.String() != "42\n" {
		return 0, fmt.Errorf("%s: printed %q, not 42", o.argv[0], out.String())
	}
	return milliseconds(took), nil
}

func (o oneShot) entry(name string) entry {
	return entry{name: name, once: o.once}
}

// peer finds a program, or the way that says that it is absent.
func peer(name, program string) (path string, missing *entry) {
	path, err := exec.LookPath(program)
	if err != nil {
		e := absent(name, "%s is not installed", program)
		return "", &e
	}
	return path, nil
}

// bubblewrap is bwrap with all namespaces, the host's tree read-only and the filter
// that a session has by default.
func (b *bench) bubblewrap() (oneShot, *entry) {
	path, missing := peer(wayBubblewrap, "bwrap")
	if missing != nil {
		return oneShot{}, missing
	}
	filters, err := filterFiles()
	if err != nil {
		e := absent(wayBubblewrap, "%v", err)
		return oneShot{}, &e
	}
	b.closing(func() { closeAll(filters) })
	argv := []string{path, "--unshare-all", "--unshare-user", "--unshare-cgroup", "--die-with-parent", "--new-session", "--ro-bind", "/", "/",
		"--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", b.dir, b.dir, "--chdir", b.dir}
	for i := range filters {
		argv = append(argv, "--add-seccomp-fd", fmt.Sprint(3+i))
	}
	return oneShot{argv: append(argv, b.python, "-I", "-c", printed), files: filters}, nil
}

// filterFiles are the programs of the default profile's filter, as files to pass on.
func filterFiles() ([]*os.File, error) {
	profile, err := profiles.Get("default")
	if err != nil {
		return nil, err
	}
	document, err := profiles.Seccomp(profile.Seccomp.Profile)
	if err != nil {
		return nil, err
	}
	filter, err := seccomp.Load(profile.Seccomp.Profile, document)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, program := range filter.Programs {
		fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		f := os.NewFile(uintptr(fd), "filter")
		files = append(files, f)
		if _, err := f.Write(seccomp.Bytes(program)); err != nil {
			closeAll(files)
			return nil, err
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// firejail is the program with its own filter and no network.
func (b *bench) firejail() (oneShot, *entry) {
	path, missing := peer("firejail", "firejail")
	if missing != nil {
		return oneShot{}, missing
	}
	return oneShot{argv: []string{path, "--quiet", "--noprofile", "--net=none", "--seccomp", "--caps.drop=all", "--private-tmp", "--read-only=/",
		b.python, "-I", "-c", printed}}, nil
}

// container is an OCI runtime (crun, runc) with a bundle that shows the host's tree.
func (b *bench) container(program string) (oneShot, *entry) {
	path, missing := peer(program, program)
	if missing != nil {
		return oneShot{}, missing
	}
	bundle := filepath.Join(b.dir, program)
	if err := writeBundle(bundle, b.python); err != nil {
		e := absent(program, "bundle: %v", err)
		return oneShot{}, &e
	}
	state := filepath.Join(bundle, "state")
	name := fmt.Sprintf("cellblock-bench-%d", os.Getpid())
	return oneShot{argv: []string{path, "--root", state, "run", "--bundle", bundle, name}}, nil
}

// writeBundle writes an OCI bundle whose root is made of the host's directories.
func writeBundle(bundle, python string) error {
	root := filepath.Join(bundle, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	type object = map[string]any
	mounts := []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755", "size=65536k"}},
		{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "nodev"}},
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := "/" + e.Name()
		switch at {
		case "/proc", "/dev", "/tmp", "/sys", "/run":
			continue
		}
		if target, err := os.Readlink(at); err == nil {
			if err := os.Symlink(target, filepath.Join(root, e.Name())); err != nil && !os.IsExist(err) {
				return err
			}
		} else if e.IsDir() {
			mounts = append(mounts, object{"destination": at, "type": "bind", "source": at, "options": []string{"rbind", "ro", "nosuid"}})
		}
	}
	linux := object{"namespaces": []object{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "cgroup"}, {"type": "user"}},
		"uidMappings": []object{{"containerID": 0, "hostID": os.Geteuid(), "size": 1}}, "gidMappings": []object{{"containerID": 0, "hostID": os.Getegid(), "size": 1}}}
	config := object{
		"ociVersion": "1.0.2", "hostname": "bench", "linux": linux, "mounts": mounts, "root": object{"path": root, "readonly": true},
		"process": object{"args": []string{python, "-I", "-c", printed}, "cwd": "/", "env": []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"},
			"user": object{"uid": 0, "gid": 0}, "noNewPrivileges": true, "capabilities": object{}},
	}
	body, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bundle, "config.json"), body, 0o644)
}

// linuxRelease is the running Linux, as uname(2) has it.
func linuxRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return strings.TrimRight(string(u.Release[:]), "\x00")
}

// apart is once with files of its own, for several at once.
func (o oneShot) apart(ctx context.Context) (float64, error) {
	var own []*os.File
	defer func() { closeAll(own) }()
	for _, f := range o.files {
		again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil {
			return 0, err
		}
		own = append(own, again)
	}
	o.files = own
	return o.once(ctx)
}
