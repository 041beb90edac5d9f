package seccomp

import (
	"encoding/binary"
	"fmt"
)

// Insn is one BPF instruction, laid out as struct sock_filter.
type Insn struct {
	Code   uint16
	JT, JF uint8
	K      uint32
}

// MaxInsns is the longest program that Linux accepts (BPF_MAXINSNS).
const MaxInsns = 4096

const insnBytes = 8

// Filter is a compiled profile.
type Filter struct {
	// Name is the name that the profile was loaded under.
	Name string
	// Digest is "sha256:" and the hex digest of the profile's text.
	Digest string
	// Arch is the GOARCH that the programs are for.
	Arch string
	// Programs are to be installed in this order, all of them.
	Programs [][]Insn
	// Unresolved are calls that the profile names and that this libseccomp
	// has no number for. They get the profile's default errno.
	Unresolved []string
	// Precompiled says that the programs were built with the product.
	Precompiled bool
}

// Bytes lays a program out as an array of struct sock_filter, little-endian as
// both supported architectures are.
func Bytes(program []Insn) []byte {
	out := make([]byte, 0, len(program)*insnBytes)
	for _, in := range program {
		out = binary.LittleEndian.AppendUint16(out, in.Code)
		out = append(out, in.JT, in.JF)
		out = binary.LittleEndian.AppendUint32(out, in.K)
	}
	return out
}

// Parse is the inverse of Bytes. It refuses an empty program, one that Linux
// would find too long, and half an instruction.
func Parse(raw []byte) ([]Insn, error) {
	switch {
	case len(raw) == 0:
		return nil, fmt.Errorf("bpf program: empty")
	case len(raw)%insnBytes != 0:
		return nil, fmt.Errorf("bpf program: %d bytes is not a whole number of instructions", len(raw))
	case len(raw) > MaxInsns*insnBytes:
		return nil, fmt.Errorf("bpf program: %d instructions, Linux takes at most %d", len(raw)/insnBytes, MaxInsns)
	}
	program := make([]Insn, len(raw)/insnBytes)
	for i := range program {
		at := raw[i*insnBytes:]
		program[i] = Insn{
			Code: binary.LittleEndian.Uint16(at),
			JT:   at[2],
			JF:   at[3],
			K:    binary.LittleEndian.Uint32(at[4:]),
		}
	}
	return program, nil
}
