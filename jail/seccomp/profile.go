package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	oci "github.com/containers/common/pkg/seccomp"
)

// maxDocument bounds a profile's text. The largest profile in use anywhere is
// some 30 KB.
const maxDocument = 1 << 20

// Decode reads a profile strictly: an unknown key, anything after the document
// and everything that this package would not enforce are errors. Entries for
// other architectures than arch (a GOARCH) are dropped, so that the result can
// be compiled for arch on any host.
func Decode(document []byte, arch string) (*oci.Seccomp, error) {
	target, ok := arches[arch]
	if !ok {
		return nil, fmt.Errorf("architecture %s: no system call profiles for it, only for amd64 and arm64", arch)
	}
	if len(document) > maxDocument {
		return nil, fmt.Errorf("document: %d bytes, at most %d", len(document), maxDocument)
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	var profile oci.Seccomp
	if err := decoder.Decode(&profile); err != nil {
		return nil, fmt.Errorf("document: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("document: something stands after the profile")
	}
	if err := checkWhole(&profile, target); err != nil {
		return nil, err
	}
	kept := profile.Syscalls[:0]
	for i, entry := range profile.Syscalls {
		if entry == nil {
			return nil, fmt.Errorf("entry %d: null", i)
		}
		if err := checkEntry(entry); err != nil {
			return nil, fmt.Errorf("entry %d (%s): %w", i, title(entry), err)
		}
		if concerns(entry, target) {
			kept = append(kept, entry)
		}
	}
	profile.Syscalls = kept
	profile.Architectures = []oci.Arch{target.oci}
	profile.ArchMap = nil
	return &profile, nil
}

// checkWhole refuses what belongs to the whole profile and would not be
// enforced as written.
func checkWhole(profile *oci.Seccomp, target arch) error {
	switch {
	case profile.DefaultAction != oci.ActErrno:
		return fmt.Errorf("defaultAction %q: must be SCMP_ACT_ERRNO, so that a call nobody thought of is refused", profile.DefaultAction)
	case profile.DefaultErrno == "" && profile.DefaultErrnoRet == nil:
		return errors.New("defaultErrno: missing, name one (ENOSYS lets libc fall back)")
	case len(profile.Flags) != 0:
		return errors.New("flags: the jail sets them itself, remove them")
	case profile.ListenerPath != "" || profile.ListenerMetadata != "":
		return errors.New("listenerPath: the jail answers no notifications, remove it")
	case len(profile.Syscalls) == 0:
		return errors.New("syscalls: none listed, nothing could run")
	}
	if len(profile.Architectures) > 0 && !slices.Contains(profile.Architectures, target.oci) {
		return fmt.Errorf("architectures: %s is not among them", target.oci)
	}
	if len(profile.ArchMap) > 0 && !slices.ContainsFunc(profile.ArchMap, func(a oci.Architecture) bool { return a.Arch == target.oci }) {
		return fmt.Errorf("archMap: %s is not among them", target.oci)
	}
	return nil
}

// checkEntry refuses what belongs to one entry and would not be enforced as
// written.
func checkEntry(entry *oci.Syscall) error {
	if entry.Action != oci.ActAllow && entry.Action != oci.ActErrno {
		return fmt.Errorf("action %q: only SCMP_ACT_ALLOW and SCMP_ACT_ERRNO are understood", entry.Action)
	}
	if entry.Action == oci.ActAllow && (entry.Errno != "" || entry.ErrnoRet != nil) {
		return errors.New("errno: has no meaning for SCMP_ACT_ALLOW")
	}
	if entry.Name == "" && len(entry.Names) == 0 {
		return errors.New("names: none given")
	}
	if entry.Name != "" && len(entry.Names) > 0 {
		return errors.New("name: use names alone")
	}
	var seen [6]bool
	for _, arg := range entry.Args {
		if arg == nil || arg.Index >= uint(len(seen)) {
			return errors.New("args: index must be 0 to 5")
		}
		// containers/common would turn these into rules of their own, which
		// ORs what the reader takes for an AND.
		if seen[arg.Index] {
			return fmt.Errorf("args: argument %d has two conditions, write two entries", arg.Index)
		}
		seen[arg.Index] = true
		if !slices.Contains(operators, arg.Op) {
			return fmt.Errorf("args: operator %q is not one of %v", arg.Op, operators)
		}
		if arg.Op == oci.OpMaskedEqual && arg.ValueTwo&^arg.Value != 0 {
			return fmt.Errorf("args: value %#x has bits outside the mask %#x and never matches", arg.ValueTwo, arg.Value)
		}
	}
	return nil
}

var operators = []oci.Operator{
	oci.OpEqualTo, oci.OpNotEqual, oci.OpMaskedEqual,
	oci.OpGreaterEqual, oci.OpGreaterThan, oci.OpLessEqual, oci.OpLessThan,
}

// concerns reports whether the entry is meant for this architecture and for a
// process without capabilities, which is what every process of a jail is.
func concerns(entry *oci.Syscall, target arch) bool {
	if len(entry.Includes.Arches) > 0 && !slices.Contains(entry.Includes.Arches, target.name) {
		return false
	}
	if slices.Contains(entry.Excludes.Arches, target.name) {
		return false
	}
	return len(entry.Includes.Caps) == 0
}

func title(entry *oci.Syscall) string {
	switch {
	case entry.Name != "":
		return entry.Name
	case len(entry.Names) == 1:
		return entry.Names[0]
	case len(entry.Names) > 1:
		return entry.Names[0] + ", …"
	default:
		return "no name"
	}
}

// arch ties the names together that one architecture goes by.
type arch struct {
	name  string   // GOARCH, and libseccomp's name
	oci   oci.Arch // in profiles
	audit uint32   // AUDIT_ARCH_*, the word that the kernel shows to a filter
}

var arches = map[string]arch{
	"amd64": {"amd64", oci.ArchX86_64, 0xc000003e},
	"arm64": {"arm64", oci.ArchAARCH64, 0xc00000b7},
}
