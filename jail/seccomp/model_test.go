package seccomp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/containers/common/pkg/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// sources is where the profiles of the product are.
const sources = "../../profiles/seccomp"

var bothArches = []string{"amd64", "arm64"}

func refuse(errno unix.Errno) uint32 { return retErrno(uint(errno)) }

func sourceNames(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(sources, "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no profiles in %s: %v", sources, err)
	}
	var names []string
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".json"))
	}
	return names
}

func source(t testing.TB, name string) []byte {
	t.Helper()
	document, err := os.ReadFile(filepath.Join(sources, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func machineOf(t testing.TB, filter Filter) machine {
	t.Helper()
	m, err := newMachine(filter.Programs, filter.Arch)
	if err != nil {
		t.Fatalf("%s %s: %v", filter.Name, filter.Arch, err)
	}
	return m
}

func (m machine) answer(t testing.TB, nr uint32, args [6]uint64) uint32 {
	t.Helper()
	ret, err := m.run(nr, args)
	if err != nil {
		t.Fatal(err)
	}
	return ret
}

// model is the text of a profile, read for one architecture without
// containers/common's conversion.
type model struct {
	profile *specs.LinuxSeccomp
	calls   map[string]*call
	names   map[uint32]string // every call that libseccomp knows
}

func newModel(t testing.TB, document []byte, arch string) model {
	t.Helper()
	var text oci.Seccomp
	if err := json.Unmarshal(document, &text); err != nil {
		t.Fatal(err)
	}
	errno := uint(errnoNamed(t, text.DefaultErrno))
	profile := &specs.LinuxSeccomp{DefaultErrnoRet: &errno}
	for _, entry := range text.Syscalls {
		if len(entry.Includes.Arches) > 0 && !slices.Contains(entry.Includes.Arches, arch) {
			continue
		}
		converted := specs.LinuxSyscall{Names: entry.Names, Action: specs.LinuxSeccompAction(entry.Action)}
		if entry.Errno != "" {
			errno := uint(errnoNamed(t, entry.Errno))
			converted.ErrnoRet = &errno
		}
		for _, arg := range entry.Args {
			converted.Args = append(converted.Args, specs.LinuxSeccompArg{Index: arg.Index, Value: arg.Value, ValueTwo: arg.ValueTwo, Op: specs.LinuxSeccompOperator(arg.Op)})
		}
		profile.Syscalls = append(profile.Syscalls, converted)
	}
	m := model{profile: profile, calls: map[string]*call{}, names: callNames(t, arch)}
	for _, c := range collect(profile) {
		m.calls[c.name] = c
	}
	return m
}

func (m model) decide(nr uint32, args [6]uint64) uint32 {
	return decide(m.profile, m.calls[m.names[nr]], args)
}

func errnoNamed(t testing.TB, name string) unix.Errno {
	t.Helper()
	for errno := unix.Errno(1); errno < 200; errno++ {
		if unix.ErrnoName(errno) == name {
			return errno
		}
	}
	t.Fatalf("errno %q", name)
	return 0
}

// callNames lists the calls of an architecture by number.
func callNames(t testing.TB, arch string) map[uint32]string {
	t.Helper()
	target, err := libseccomp.GetArchFromString(arch)
	if err != nil {
		t.Fatal(err)
	}
	names := map[uint32]string{}
	for nr := range uint32(1024) {
		if name, err := libseccomp.ScmpSyscall(nr).GetNameByArch(target); err == nil && name != "" {
			names[nr] = name
		}
	}
	if len(names) < 250 {
		t.Fatalf("libseccomp knows %d calls of %s only", len(names), arch)
	}
	return names
}
