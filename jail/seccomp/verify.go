package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Return values of a filter.
const (
	retAllow = uint32(unix.SECCOMP_RET_ALLOW)
	retKill  = uint32(unix.SECCOMP_RET_KILL_PROCESS)
)

func retErrno(errno uint) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno)&unix.SECCOMP_RET_DATA }

// decide gives the answer for one call by the table in the package comment. It
// is what the compiled programs are held against.
func decide(profile *specs.LinuxSeccomp, c *call, args [6]uint64) uint32 {
	if c == nil {
		return retErrno(*profile.DefaultErrnoRet)
	}
	allows := c.allow
	for _, conditions := range c.allowIf {
		allows = allows || matches(conditions, args)
	}
	if !allows && c.refuse == nil {
		return retErrno(*profile.DefaultErrnoRet)
	}
	if !allows && len(c.allowIf) == 0 {
		return retErrno(*c.refuse)
	}
	for _, entry := range c.refuseWhen {
		if matches(entry.Args, args) {
			return retErrno(*entry.ErrnoRet)
		}
	}
	if !allows {
		return retErrno(*c.refuse)
	}
	return retAllow
}

func matches(conditions []specs.LinuxSeccompArg, args [6]uint64) bool {
	for _, c := range conditions {
		got, ok := args[c.Index], false
		switch c.Op {
		case specs.OpEqualTo:
			ok = got == c.Value
		case specs.OpNotEqual:
			ok = got != c.Value
		case specs.OpMaskedEqual:
			ok = got&c.Value == c.ValueTwo
		case specs.OpGreaterEqual:
			ok = got >= c.Value
		case specs.OpGreaterThan:
			ok = got > c.Value
		case specs.OpLessEqual:
			ok = got <= c.Value
		case specs.OpLessThan:
			ok = got < c.Value
		}
		if !ok {
			return false
		}
	}
	return true
}

// machine runs the programs of a filter as Linux does.
type machine struct {
	audit    uint32
	programs []*bpf.VM
}

func newMachine(programs [][]Insn, goarch string) (machine, error) {
	m := machine{audit: arches[goarch].audit}
	for _, program := range programs {
		instructions := make([]bpf.Instruction, len(program))
		for i, in := range program {
			instructions[i] = bpf.RawInstruction{Op: in.Code, Jt: in.JT, Jf: in.JF, K: in.K}.Disassemble()
		}
		vm, err := bpf.NewVM(instructions)
		if err != nil {
			return machine{}, err
		}
		m.programs = append(m.programs, vm)
	}
	return m, nil
}

// run gives the answer of all programs together: the strictest action, and of
// equal ones that of the program installed last.
func (m machine) run(nr uint32, args [6]uint64) (uint32, error) {
	// struct seccomp_data. The interpreter reads big-endian words.
	var data [64]byte
	binary.BigEndian.PutUint32(data[0:], nr)
	binary.BigEndian.PutUint32(data[4:], m.audit)
	for i, arg := range args {
		binary.BigEndian.PutUint32(data[16+8*i:], uint32(arg))
		binary.BigEndian.PutUint32(data[20+8*i:], uint32(arg>>32))
	}
	result := retAllow
	for _, program := range slices.Backward(m.programs) {
		ret, err := program.Run(data[:])
		if err != nil {
			return 0, err
		}
		// Linux compares actions as signed numbers, the least being strictest.
		if strictness(uint32(ret)) < strictness(result) {
			result = uint32(ret)
		}
	}
	return result, nil
}

func strictness(ret uint32) int32 { return int32(ret & unix.SECCOMP_RET_ACTION_FULL) }

// interesting lists values for each argument that a call's conditions look at:
// each constant, its neighbours, with other bits and with the upper half set.
// Arguments that nothing looks at are 0.
func interesting(c *call) [6][]uint64 {
	var values [6][]uint64
	for i := range values {
		values[i] = []uint64{0}
	}
	if c == nil {
		return values
	}
	note := func(conditions []specs.LinuxSeccompArg) {
		for _, condition := range conditions {
			v := condition.Value
			if condition.Op == specs.OpMaskedEqual {
				v = condition.ValueTwo
			}
			values[condition.Index] = append(values[condition.Index],
				v, v+1, v-1, v|1<<32, v|1<<63, v|0x100, v|0xf000, v<<32, 1<<32-1, 1<<64-1)
		}
	}
	for _, conditions := range c.allowIf {
		note(conditions)
	}
	for _, entry := range c.refuseWhen {
		note(entry.Args)
	}
	for i := range values {
		slices.Sort(values[i])
		values[i] = slices.Compact(values[i])
	}
	return values
}

// maxTries bounds the argument lists that are tried for one call. No call of
// the built-in profiles comes near.
const maxTries = 1 << 18

// combinations calls f with combinations of the values until f returns false
// or maxTries is reached.
func combinations(values [6][]uint64, f func([6]uint64) bool) {
	var at [6]int
	for range maxTries {
		var args [6]uint64
		for i := range args {
			args[i] = values[i][at[i]]
		}
		if !f(args) {
			return
		}
		i := 0
		for ; i < len(at); i++ {
			if at[i]++; at[i] < len(values[i]) {
				break
			}
			at[i] = 0
		}
		if i == len(at) {
			return
		}
	}
}

// disagreement is an argument list for which a program decides otherwise than
// the profile's text.
type disagreement struct {
	call      *call
	nr        uint32
	args      [6]uint64
	got, want uint32
}

func (d *disagreement) Error() string {
	return fmt.Sprintf("%s %#x: the compiled program says %s, the profile %s", d.call.name, d.args, show(d.got), show(d.want))
}

// show names a filter's return value.
func show(ret uint32) string {
	switch ret & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_ALLOW:
		return "allow"
	case unix.SECCOMP_RET_KILL_PROCESS:
		return "kill"
	case unix.SECCOMP_RET_ERRNO:
		return unix.ErrnoName(unix.Errno(ret & unix.SECCOMP_RET_DATA))
	default:
		return fmt.Sprintf("%#x", ret)
	}
}

// verify runs the programs on every call of the profile and reports the first
// disagreement. Number gives a call's number, false when it has none here.
func verify(profile *specs.LinuxSeccomp, calls []*call, programs [][]Insn, goarch string, number func(string) (uint32, bool)) (*disagreement, error) {
	m, err := newMachine(programs, goarch)
	if err != nil {
		return nil, err
	}
	for _, c := range calls {
		nr, ok := number(c.name)
		if !ok {
			continue
		}
		var found *disagreement
		combinations(interesting(c), func(args [6]uint64) bool {
			want := decide(profile, c, args)
			var got uint32
			if got, err = m.run(nr, args); err == nil && got != want {
				found = &disagreement{c, nr, args, got, want}
			}
			return err == nil && found == nil
		})
		if err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil
}
