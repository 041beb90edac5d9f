package seccomp

import (
	"bytes"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"runtime"
)

// magic opens a file of programs compiled ahead.
const magic = "cellblock bpf 1\n"

// Pack writes the programs of a filter in the form that Unpack reads: the
// magic line, the digest line of the profile's text, and for each program its
// length in instructions (32 bits, little-endian) and its bytes.
func Pack(filter Filter) []byte {
	out := []byte(magic + filter.Digest + "\n")
	for _, program := range filter.Programs {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(program)))
		out = append(out, Bytes(program)...)
	}
	return out
}

// Unpack reads what Pack wrote.
func Unpack(raw []byte) (Filter, error) {
	rest, ok := bytes.CutPrefix(raw, []byte(magic))
	if !ok {
		return Filter{}, errors.New("compiled profile: not a file of bpf programs")
	}
	sum, rest, ok := bytes.Cut(rest, []byte("\n"))
	if !ok {
		return Filter{}, errors.New("compiled profile: no digest")
	}
	filter := Filter{Digest: string(sum)}
	for len(rest) > 0 {
		if len(rest) < 4 {
			return Filter{}, errors.New("compiled profile: cut short")
		}
		length := uint64(binary.LittleEndian.Uint32(rest)) * insnBytes
		rest = rest[4:]
		if length > uint64(len(rest)) {
			return Filter{}, errors.New("compiled profile: cut short")
		}
		program, err := Parse(rest[:length])
		if err != nil {
			return Filter{}, fmt.Errorf("compiled profile: %w", err)
		}
		filter.Programs = append(filter.Programs, program)
		rest = rest[length:]
	}
	if len(filter.Programs) == 0 {
		return Filter{}, errors.New("compiled profile: no program")
	}
	return filter, nil
}

// builtin finds the programs compiled ahead for a profile's digest.
func builtin(sum, goarch string) (Filter, bool) {
	if goarch != runtime.GOARCH {
		return Filter{}, false
	}
	return find(compiledAhead, sum, goarch)
}

func find(files embed.FS, sum, goarch string) (Filter, bool) {
	entries, err := files.ReadDir("builtin")
	if err != nil {
		return Filter{}, false
	}
	prefix := []byte(magic + sum + "\n")
	for _, entry := range entries {
		raw, err := files.ReadFile(path.Join("builtin", entry.Name()))
		if err != nil || !bytes.HasPrefix(raw, prefix) {
			continue
		}
		filter, err := Unpack(raw)
		if err != nil {
			return Filter{}, false
		}
		filter.Arch = goarch
		filter.Precompiled = true
		return filter, true
	}
	return Filter{}, false
}
