package seccomp

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// precompiled reads a program that was compiled ahead, of either architecture.
func precompiled(t testing.TB, name, arch string) Filter {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("builtin", name+"."+arch+".bpf"))
	if err != nil {
		t.Fatalf("%v (run make golden)", err)
	}
	filter, err := Unpack(raw)
	if err != nil {
		t.Fatal(err)
	}
	filter.Name, filter.Arch = name, arch
	if !bytes.Equal(Pack(filter), raw) {
		t.Errorf("%s %s: packed again it differs", name, arch)
	}
	return filter
}

// The programs that ship and those that libseccomp makes now both decide every
// call, with every argument the profile looks at, as the profile's text says.
func TestProgramsDecideAsTheProfileSays(t *testing.T) {
	for _, name := range sourceNames(t) {
		for _, arch := range bothArches {
			t.Run(name+"/"+arch, func(t *testing.T) {
				t.Parallel()
				document := source(t, name)
				fresh, err := Compile(name, document, arch)
				if err != nil {
					t.Fatal(err)
				}
				shipped := precompiled(t, name, arch)
				if shipped.Digest != fresh.Digest {
					t.Errorf("%s was changed and not compiled again: run make golden", name)
				}
				want := newModel(t, document, arch)
				machines := map[string]machine{"compiled now": machineOf(t, fresh), "compiled ahead": machineOf(t, shipped)}
				tried, wrong := 0, 0
				for nr := range uint32(700) {
					combinations(interesting(want.calls[want.names[nr]]), func(args [6]uint64) bool {
						expected := want.decide(nr, args)
						for which, m := range machines {
							tried++
							got := m.answer(t, nr, args)
							if got != expected && wrong < 20 {
								wrong++
								t.Errorf("%s: %s (%d) %#x: %s, the profile says %s", which, want.names[nr], nr, args, show(got), show(expected))
							}
						}
						return true
					})
				}
				t.Logf("%d calls and argument lists", tried)
			})
		}
	}
}

// No call is refused only because nobody thought of it.
func TestEveryKnownCallHasAnEntry(t *testing.T) {
	for _, name := range sourceNames(t) {
		for _, arch := range bothArches {
			m := newModel(t, source(t, name), arch)
			for nr, call := range m.names {
				if m.calls[call] == nil {
					t.Errorf("%s: no entry for %s (%s, number %d)", name, call, arch, nr)
				}
			}
		}
	}
}

// What strict lets through, compatible lets through too.
func TestStrictIsNarrower(t *testing.T) {
	for _, arch := range bothArches {
		strict := newModel(t, source(t, "strict"), arch)
		m := machineOf(t, precompiled(t, "compatible", arch))
		for nr, call := range strict.names {
			combinations(interesting(strict.calls[call]), func(args [6]uint64) bool {
				if strict.decide(nr, args) != retAllow {
					return true
				}
				if got := m.answer(t, nr, args); got != retAllow {
					t.Errorf("%s %#x on %s: strict allows it, compatible says %s", call, args, arch, show(got))
					return false
				}
				return true
			})
		}
	}
}

func TestOtherABIsDie(t *testing.T) {
	foreign := map[string]map[string]uint32{
		"amd64": {"i386, int 0x80": unix.AUDIT_ARCH_I386, "arm64": unix.AUDIT_ARCH_AARCH64},
		"arm64": {"AArch32": unix.AUDIT_ARCH_ARM, "amd64": unix.AUDIT_ARCH_X86_64},
	}
	for _, name := range sourceNames(t) {
		for arch, others := range foreign {
			m := machineOf(t, precompiled(t, name, arch))
			for what, audit := range others {
				m.audit = audit
				for nr := range uint32(500) {
					if got := m.answer(t, nr, [6]uint64{}); got != retKill {
						t.Fatalf("%s for %s: call %d of %s: %s", name, arch, nr, what, show(got))
					}
				}
			}
		}
		m := machineOf(t, precompiled(t, name, "amd64"))
		const x32 = 0x40000000
		for nr := range uint32(600) {
			if got := m.answer(t, nr|x32, [6]uint64{}); got != retKill {
				t.Fatalf("%s: x32 call %d: %s", name, nr, show(got))
			}
		}
	}
}

func TestUnknownNumbersAreNotImplemented(t *testing.T) {
	for _, name := range sourceNames(t) {
		for _, arch := range bothArches {
			m := machineOf(t, precompiled(t, name, arch))
			for nr := uint32(470); nr < 1000; nr++ {
				if got := m.answer(t, nr, [6]uint64{}); got != refuse(unix.ENOSYS) {
					t.Fatalf("%s %s: call %d: %s", name, arch, nr, show(got))
				}
			}
		}
	}
}

func TestProgramsFitLinux(t *testing.T) {
	for _, name := range sourceNames(t) {
		for _, arch := range bothArches {
			total := 0
			for i, program := range precompiled(t, name, arch).Programs {
				if len(program) > MaxInsns {
					t.Errorf("%s %s, program %d: %d instructions", name, arch, i, len(program))
				}
				total += len(program)
			}
			t.Logf("%s %s: %d instructions", name, arch, total)
		}
	}
}
