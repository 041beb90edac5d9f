//go:build seccomp && cgo

package seccomp

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	oci "github.com/containers/common/pkg/seccomp"
	"golang.org/x/sys/unix"
)

func TestBuiltInProfilesAreNotCompiledAtStart(t *testing.T) {
	for _, name := range sourceNames(t) {
		filter, err := Load("any name", source(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if !filter.Precompiled {
			t.Errorf("%s was compiled by libseccomp: run make golden", name)
		}
		if filter.Name != "any name" || filter.Arch != runtime.GOARCH || !strings.HasPrefix(filter.Digest, "sha256:") {
			t.Errorf("%+v", filter)
		}
	}
}

func TestChangedProfileIsCompiledOnce(t *testing.T) {
	document := append(bytes.Clone(source(t, "strict")), '\n')
	first, err := Load("mine", document)
	if err != nil {
		t.Fatal(err)
	}
	if first.Precompiled {
		t.Error("a changed text met the programs of the unchanged one")
	}
	again, err := Load("mine again", document)
	if err != nil {
		t.Fatal(err)
	}
	if &again.Programs[0][0] != &first.Programs[0][0] {
		t.Error("compiled twice in one process")
	}
	if again.Name != "mine again" {
		t.Errorf("named %q", again.Name)
	}
}

// The profile of podman reads and compiles: users bring theirs.
func TestForeignProfileCompiles(t *testing.T) {
	document, err := json.Marshal(oci.DefaultProfile())
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range bothArches {
		filter, err := Compile("podman", document, arch)
		if err != nil {
			t.Errorf("%s: %v", arch, err)
			continue
		}
		m := machineOf(t, filter)
		for call, want := range map[string]uint32{"read": retAllow, "setns": refuse(unix.EPERM), "init_module": refuse(unix.EPERM)} {
			nr, _ := number(call, arch)
			if got := m.answer(t, nr, [6]uint64{}); got != want {
				t.Errorf("%s on %s: %s, want %s", call, arch, show(got), show(want))
			}
		}
	}
}

// entry makes a profile with one entry beside the read call.
func entry(text string) string {
	return `{"defaultAction":"SCMP_ACT_ERRNO","defaultErrno":"ENOSYS","syscalls":[{"names":["read"],"action":"SCMP_ACT_ALLOW","comment":"x"},` + text + `]}`
}

func TestWhatWouldNotBeEnforcedIsRefused(t *testing.T) {
	for document, want := range map[string]string{
		`{`:    "unexpected EOF",
		`[]`:   "cannot unmarshal",
		`null`: "defaultAction",
		`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[]}`:                                             "must be SCMP_ACT_ERRNO",
		`{"defaultAction":"SCMP_ACT_LOG","syscalls":[]}`:                                               "must be SCMP_ACT_ERRNO",
		`{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[]}`:                                             "defaultErrno",
		`{"defaultAction":"SCMP_ACT_ERRNO","defaultErrno":"ENOSYS","syscalls":[]}`:                     "none listed",
		entry(`{"names":["write"],"action":"SCMP_ACT_ALLOW"}`) + `{}`:                                  "after the profile",
		entry(`{"names":["write"],"action":"SCMP_ACT_ALOW"}`):                                          "SCMP_ACT_ALOW",
		entry(`{"names":["write"],"action":"SCMP_ACT_NOTIFY"}`):                                        "only SCMP_ACT_ALLOW",
		entry(`{"names":["write"],"action":"SCMP_ACT_TRACE"}`):                                         "only SCMP_ACT_ALLOW",
		entry(`{"names":["write"],"action":"SCMP_ACT_ALLOW","errno":"EPERM"}`):                         "no meaning",
		entry(`{"names":["write"],"action":"SCMP_ACT_ALLOW","reason":"x"}`):                            "reason",
		entry(`{"names":[],"action":"SCMP_ACT_ALLOW"}`):                                                "none given",
		entry(`{"name":"write","names":["write"],"action":"SCMP_ACT_ALLOW"}`):                          "names alone",
		entry(`{"names":["writeto"],"action":"SCMP_ACT_ALLOW"}`):                                       "writeto",
		entry(`{"names":["write"],"action":"SCMP_ACT_ERRNO","errno":"EWHAT"}`):                         "EWHAT",
		entry(`{"names":["write"],"action":"SCMP_ACT_ALLOW","args":[{"index":6,"op":"SCMP_CMP_EQ"}]}`): "0 to 5",
		entry(`{"names":["write"],"action":"SCMP_ACT_ALLOW","args":[null]}`):                           "0 to 5",
		entry(`null`): "null",
		entry(`{"names":["write"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":1,"op":"SCMP_CMP_EQ"},{"index":0,"value":2,"op":"SCMP_CMP_EQ"}]}`): "two conditions",
		entry(`{"names":["write"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":1,"valueTwo":2,"op":"SCMP_CMP_MASKED_EQ"}]}`):                      "never matches",
		entry(`{"names":["write"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":1,"op":"SCMP_CMP_ABOUT"}]}`):                                       "SCMP_CMP_ABOUT",
		strings.Replace(entry(`{"names":["write"],"action":"SCMP_ACT_ALLOW"}`), `{`, `{"flags":["SECCOMP_FILTER_FLAG_LOG"],`, 1):                          "flags",
		strings.Replace(entry(`{"names":["write"],"action":"SCMP_ACT_ALLOW"}`), `{`, `{"listenerPath":"/x",`, 1):                                          "listenerPath",
		strings.Replace(entry(`{"names":["write"],"action":"SCMP_ACT_ALLOW"}`), `{`, `{"architectures":["SCMP_ARCH_S390X"],`, 1):                          "architectures",
	} {
		if _, err := Compile("mine", []byte(document), "amd64"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n gives %v, want an error with %q", document, err, want)
		}
	}
	if _, err := Compile("mine", source(t, "strict"), "riscv64"); err == nil || !strings.Contains(err.Error(), "riscv64") {
		t.Errorf("riscv64: %v", err)
	}
}

// Entries for a process with capabilities are for none of ours.
func TestEntriesForCapableProcessesAreDropped(t *testing.T) {
	document := entry(`{"names":["mount"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}},
		{"names":["umount2"],"action":"SCMP_ACT_ERRNO","errno":"EACCES","excludes":{"caps":["CAP_SYS_ADMIN"]}},
		{"names":["iopl"],"action":"SCMP_ACT_ALLOW","includes":{"arches":["arm64"]}}`)
	filter, err := Compile("mine", []byte(document), "amd64")
	if err != nil {
		t.Fatal(err)
	}
	m := machineOf(t, filter)
	for call, want := range map[string]uint32{"mount": refuse(unix.ENOSYS), "umount2": refuse(unix.EACCES), "iopl": refuse(unix.ENOSYS), "read": retAllow} {
		nr, _ := number(call, "amd64")
		if got := m.answer(t, nr, [6]uint64{}); got != want {
			t.Errorf("%s: %s, want %s", call, show(got), show(want))
		}
	}
}

func TestNamesThatThisLibraryDoesNotKnowAreSaid(t *testing.T) {
	filter, err := Compile("mine", []byte(entry(`{"names":["write","file_setattr"],"action":"SCMP_ACT_ALLOW"}`)), "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if _, known := number("file_setattr", "amd64"); known == (len(filter.Unresolved) == 1) {
		t.Errorf("unresolved: %v, libseccomp knows the call: %v", filter.Unresolved, known)
	}
}

// An argument that no single program could decide is decided all the same:
// allowed whole, and refused for one value in 32 bits.
func TestConditionalRefusalSurvivesAnUnconditionalAllow(t *testing.T) {
	document := entry(`{"names":["ioctl"],"action":"SCMP_ACT_ALLOW"},
		{"names":["ioctl"],"action":"SCMP_ACT_ERRNO","errno":"EACCES","args":[{"index":1,"value":4294967295,"valueTwo":21522,"op":"SCMP_CMP_MASKED_EQ"}]}`)
	filter, err := Compile("mine", []byte(document), "amd64")
	if err != nil {
		t.Fatal(err)
	}
	m := machineOf(t, filter)
	nr, _ := number("ioctl", "amd64")
	for request, want := range map[uint64]uint32{21522: refuse(unix.EACCES), 21522 | 1<<32: refuse(unix.EACCES), 21523: retAllow} {
		if got := m.answer(t, nr, [6]uint64{0, request}); got != want {
			t.Errorf("ioctl %#x: %s, want %s", request, show(got), show(want))
		}
	}
}

func TestUnpackRefusesWhatPackDoesNotWrite(t *testing.T) {
	good := Pack(Filter{Digest: "sha256:00", Programs: [][]Insn{{{Code: 6}}}})
	if _, err := Unpack(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		if i >= len(magic)+len("sha256:00\n") || i < len(magic) {
			if filter, err := Unpack(good[:i]); err == nil {
				t.Errorf("cut at %d of %d: %+v", i, len(good), filter)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	// Small ones: the fuzzer spends its time on shortening large seeds.
	for _, text := range []string{
		`{"names":["write"],"action":"SCMP_ACT_ALLOW"}`,
		`{"names":["ioctl"],"action":"SCMP_ACT_ERRNO","errno":"EPERM","args":[{"index":1,"value":4294967295,"valueTwo":21522,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`{"name":"mount","action":"SCMP_ACT_ERRNO","errnoRet":1,"includes":{"arches":["amd64"],"caps":["CAP_SYS_ADMIN"]},"excludes":{"arches":["arm64"]}}`,
	} {
		f.Add([]byte(entry(text)))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		profile, err := Decode(document, "amd64")
		if err != nil {
			return
		}
		if profile.DefaultAction != oci.ActErrno {
			t.Error("a profile was accepted that lets unlisted calls through")
		}
		for _, e := range profile.Syscalls {
			if e.Action != oci.ActAllow && e.Action != oci.ActErrno {
				t.Errorf("action %s was accepted", e.Action)
			}
		}
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add(Pack(Filter{Digest: "sha256:00", Programs: [][]Insn{{{Code: 6}}}}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		filter, err := Unpack(raw)
		if err == nil && !bytes.Equal(Pack(filter), raw) {
			t.Error("what was unpacked packs differently")
		}
	})
}

func BenchmarkLoadBuiltIn(b *testing.B) {
	document := source(b, "compatible")
	for b.Loop() {
		if _, err := Load("compatible", document); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	document := source(b, "compatible")
	for b.Loop() {
		if _, err := Compile("compatible", document, "amd64"); err != nil {
			b.Fatal(err)
		}
	}
}

// The call that installs a program must get past those installed before.
func TestProgramsLetTheNextOneIn(t *testing.T) {
	for _, name := range sourceNames(t) {
		for _, arch := range bothArches {
			filter := precompiled(t, name, arch)
			filter.Programs = filter.Programs[:len(filter.Programs)-1]
			nr, _ := number("seccomp", arch)
			args := [6]uint64{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC}
			if got := machineOf(t, filter).answer(t, nr, args); got != retAllow {
				t.Errorf("%s %s: seccomp before the last program: %s", name, arch, show(got))
			}
		}
	}
}
