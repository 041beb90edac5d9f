//go:build seccomp && cgo

package seccomp

import (
	"errors"
	"fmt"
	"io"
	"os"

	oci "github.com/containers/common/pkg/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// binaryTree is libseccomp's optimization level (2.5 and later) that sorts the
// calls into a tree. It shortens the way of a call, and above all the time that
// Linux 5.11 and later need to find the calls that every filter always allows.
const binaryTree = 2

// Compile builds the programs of a profile for a GOARCH with libseccomp,
// whatever architecture this process runs on. It needs some 50 ms, checking what libseccomp made of it included.
func Compile(name string, document []byte, goarch string) (Filter, error) {
	filter := Filter{Name: name, Digest: digest(document), Arch: goarch}
	profile, err := Decode(document, goarch)
	if err != nil {
		return Filter{}, fmt.Errorf("system call profile %s: %w", name, err)
	}
	// Without a process that has capabilities, containers/common would keep the
	// entries that are meant for a capable one.
	nobody := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}
	spec, err := oci.LoadProfileFromConfig(profile, nobody)
	if err != nil {
		return Filter{}, fmt.Errorf("system call profile %s: %w", name, err)
	}
	if filter.Unresolved, err = unresolved(spec, goarch); err != nil {
		return Filter{}, fmt.Errorf("system call profile %s: %w", name, err)
	}
	if filter.Programs, err = faithful(spec, collect(spec), goarch); err != nil {
		return Filter{}, fmt.Errorf("system call profile %s: %w", name, err)
	}
	return filter, nil
}

// faithful builds the programs and runs them on every call of the profile. It
// gives a call that they get wrong programs of its own and builds again:
// libseccomp (2.5.4, seen for arm64) shares a block of comparisons between
// calls that arrive there with different arguments loaded, and so allowed
// socket(AF_INET, SOCK_STREAM, 1) for want of one load. What stays wrong is an
// error, never a filter.
func faithful(spec *specs.LinuxSeccomp, calls []*call, goarch string) ([][]Insn, error) {
	isolated := map[string]bool{}
	for {
		var programs [][]Insn
		for _, part := range split(spec, calls, isolated) {
			program, err := build(part, goarch)
			if err != nil {
				return nil, err
			}
			programs = append(programs, program)
		}
		wrong, err := verify(spec, calls, programs, goarch, func(name string) (uint32, bool) { return number(name, goarch) })
		if err != nil {
			return nil, err
		}
		if wrong == nil {
			return programs, nil
		}
		if isolated[wrong.call.name] {
			return nil, wrong
		}
		isolated[wrong.call.name] = true
	}
}

// unresolved lists the names that libseccomp has no number for. It is an error
// when such a name is not one of the calls known to be younger than
// libseccomp 2.5: then it is misspelt.
func unresolved(spec *specs.LinuxSeccomp, goarch string) ([]string, error) {
	target, err := libseccomp.GetArchFromString(goarch)
	if err != nil {
		return nil, err
	}
	var missing []string
	seen := map[string]bool{}
	for _, entry := range spec.Syscalls {
		for _, name := range entry.Names {
			if seen[name] {
				continue
			}
			seen[name] = true
			if _, err := libseccomp.GetSyscallFromNameByArch(name, target); err == nil {
				continue
			}
			if !youngCalls[name] {
				return nil, fmt.Errorf("%s: no system call has this name", name)
			}
			missing = append(missing, name)
		}
	}
	return missing, nil
}

func build(part *specs.LinuxSeccomp, goarch string) ([]Insn, error) {
	filter, err := oci.BuildFilter(part)
	if err != nil {
		return nil, err
	}
	defer filter.Release()
	target, err := libseccomp.GetArchFromString(goarch)
	if err != nil {
		return nil, err
	}
	native, err := libseccomp.GetNativeArch()
	if err != nil {
		return nil, err
	}
	if native != target {
		// A new filter always has the native architecture.
		if err := filter.RemoveArch(native); err != nil {
			return nil, fmt.Errorf("drop architecture %s: %w", native, err)
		}
	}
	if err := filter.SetBadArchAction(libseccomp.ActKillProcess); err != nil {
		return nil, fmt.Errorf("set bad architecture action: %w", err)
	}
	if err := filter.SetOptimize(binaryTree); err != nil {
		var version libseccomp.VersionError
		if !errors.As(err, &version) {
			return nil, fmt.Errorf("set optimization: %w", err)
		}
	}
	return export(filter)
}

// export takes the program out of libseccomp. Versions before 2.6 write to a
// descriptor only; a memfd takes any length without a reader.
func export(filter *libseccomp.ScmpFilter) ([]Insn, error) {
	fd, err := unix.MemfdCreate("bpf", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "bpf")
	defer file.Close()
	if err := filter.ExportBPF(file); err != nil {
		return nil, fmt.Errorf("export bpf: %w", err)
	}
	raw, err := io.ReadAll(io.NewSectionReader(file, 0, maxDocument))
	if err != nil {
		return nil, fmt.Errorf("read bpf: %w", err)
	}
	return Parse(raw)
}

// number gives a call's number on a GOARCH, false when it has none there.
func number(name, goarch string) (uint32, bool) {
	target, err := libseccomp.GetArchFromString(goarch)
	if err != nil {
		return 0, false
	}
	nr, err := libseccomp.GetSyscallFromNameByArch(name, target)
	return uint32(nr), err == nil && nr >= 0
}
