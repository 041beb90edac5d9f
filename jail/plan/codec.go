package plan

import "errors"

// ErrCorrupt is returned by Decode for bytes that Encode did not make.
var ErrCorrupt = errors.New("plan: corrupt encoding: rebuild launcher and stage together")

// Encode returns the plan as the stage reads it: every field in order of
// declaration, integers as varints, strings and lists with their length first.
// JSON would cost the stage more time at its start than all its mounts.
func (p *Plan) Encode() []byte {
	w := &writer{b: make([]byte, 0, 16<<10)}
	w.plan(p)
	return w.b
}

// Decode reads what Encode wrote.
func Decode(b []byte) (*Plan, error) {
	r := &reader{b: b}
	p := new(Plan)
	r.plan(p)
	if r.bad || len(r.b) != 0 || p.Version != Version {
		return nil, ErrCorrupt
	}
	return p, nil
}

type writer struct{ b []byte }

func (w *writer) uint(v uint64) {
	for v >= 0x80 {
		w.b = append(w.b, byte(v)|0x80)
		v >>= 7
	}
	w.b = append(w.b, byte(v))
}

func (w *writer) int(v int64) { w.uint(uint64(v<<1) ^ uint64(v>>63)) }

func (w *writer) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
	}
}

func (w *writer) str(s string) {
	w.uint(uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *writer) strs(l []string) {
	w.uint(uint64(len(l)))
	for _, s := range l {
		w.str(s)
	}
}

func (w *writer) limits(l []Limit) {
	w.uint(uint64(len(l)))
	for _, x := range l {
		w.str(x.Name)
		w.int(x.Value)
		w.str(x.By)
	}
}

func (w *writer) step(s *Step) {
	w.str(string(s.Op))
	w.str(string(s.Side))
	w.str(s.Path)
	w.str(s.Source)
	w.str(s.FSType)
	w.str(s.Data)
	w.uint(s.Flags)
	w.uint(uint64(s.Mode))
	w.int(int64(s.Slot))
	w.uint(s.Num)
	w.uint(s.Soft)
	w.uint(s.Hard)
	w.bool(s.Recursive)
	w.bool(s.Optional)
	w.bool(s.Mkdir)
	w.bool(s.NoLinks)
	w.bool(s.Map != nil)
	if m := s.Map; m != nil {
		w.int(int64(m.FSUID))
		w.int(int64(m.FSGID))
		w.int(int64(m.UID))
		w.int(int64(m.GID))
		w.bool(m.Required)
		w.bool(m.Swap)
	}
	w.strs(s.Names)
	w.uint(s.Handled)
	w.uint(s.Scoped)
	w.uint(uint64(len(s.Rules)))
	for _, r := range s.Rules {
		w.str(r.Path)
		w.uint(r.Rights)
		w.strs(r.Names)
	}
	w.limits(s.Limits)
	w.str(s.Reason)
}

func (w *writer) program(prog []Insn) {
	w.uint(uint64(len(prog)))
	for _, in := range prog {
		w.b = append(w.b, byte(in.Code), byte(in.Code>>8), in.Jt, in.Jf,
			byte(in.K), byte(in.K>>8), byte(in.K>>16), byte(in.K>>24))
	}
}

func (w *writer) plan(p *Plan) {
	w.int(int64(p.Version))
	w.str(p.Name)
	w.str(p.SpecDigest)
	w.int(int64(p.IDs.InnerUID))
	w.int(int64(p.IDs.InnerGID))
	w.int(int64(p.IDs.OuterUID))
	w.int(int64(p.IDs.OuterGID))
	w.bool(p.SwitchIDs)
	w.bool(p.Forked)
	w.uint(p.Namespaces)
	w.uint(uint64(len(p.Steps)))
	for i := range p.Steps {
		w.step(&p.Steps[i])
	}
	w.str(p.SeccompName)
	w.str(p.SeccompDigest)
	w.uint(uint64(len(p.Programs)))
	for _, prog := range p.Programs {
		w.program(prog)
	}
	w.program(p.Observer)
	w.uint(uint64(len(p.Witness)))
	for _, c := range p.Witness {
		w.str(c.Name)
		w.str(c.Act)
		w.str(c.Arg)
		w.strs(c.Want)
		w.str(c.Reason)
		w.bool(c.Forked)
	}
	w.strs(p.Worker.Argv)
	w.strs(p.Worker.Env)
	w.str(p.Worker.Dir)
	w.limits(p.Limits)
	w.uint(uint64(len(p.Degraded)))
	for _, d := range p.Degraded {
		w.str(d.Feature)
		w.str(d.Why)
		w.str(d.Remedy)
	}
}

// reader reads forward; the first fault sets bad and everything after it reads
// as zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		c := r.byte()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.bad = true
	return 0
}

func (r *reader) int() int64 {
	u := r.uint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) bool() bool { return r.byte() == 1 }

// len reads a count whose elements take at least size bytes each, so that a
// corrupt count cannot make us allocate more than what came.
func (r *reader) len(size int) int {
	n := r.uint()
	if n > uint64(len(r.b)/size) {
		r.bad = true
		return 0
	}
	return int(n)
}

func (r *reader) str() string {
	n := r.len(1)
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) strs() []string {
	n := r.len(1)
	if n == 0 {
		return nil
	}
	l := make([]string, n)
	for i := range l {
		l[i] = r.str()
	}
	return l
}

func (r *reader) limits() []Limit {
	n := r.len(3)
	if n == 0 {
		return nil
	}
	l := make([]Limit, n)
	for i := range l {
		l[i] = Limit{Name: r.str(), Value: r.int(), By: r.str()}
	}
	return l
}

func (r *reader) step(s *Step) {
	s.Op = Op(r.str())
	s.Side = Side(r.str())
	s.Path = r.str()
	s.Source = r.str()
	s.FSType = r.str()
	s.Data = r.str()
	s.Flags = r.uint()
	s.Mode = uint32(r.uint())
	s.Slot = int(r.int())
	s.Num = r.uint()
	s.Soft = r.uint()
	s.Hard = r.uint()
	s.Recursive = r.bool()
	s.Optional = r.bool()
	s.Mkdir = r.bool()
	s.NoLinks = r.bool()
	if r.bool() {
		s.Map = &IDMap{
			FSUID: int(r.int()), FSGID: int(r.int()),
			UID: int(r.int()), GID: int(r.int()), Required: r.bool(), Swap: r.bool(),
		}
	}
	s.Names = r.strs()
	s.Handled = r.uint()
	s.Scoped = r.uint()
	if n := r.len(3); n > 0 {
		s.Rules = make([]Rule, n)
		for i := range s.Rules {
			s.Rules[i] = Rule{Path: r.str(), Rights: r.uint(), Names: r.strs()}
		}
	}
	s.Limits = r.limits()
	s.Reason = r.str()
}

func (r *reader) plan(p *Plan) {
	p.Version = int(r.int())
	p.Name = r.str()
	p.SpecDigest = r.str()
	p.IDs = IDs{InnerUID: int(r.int()), InnerGID: int(r.int()), OuterUID: int(r.int()), OuterGID: int(r.int())}
	p.SwitchIDs = r.bool()
	p.Forked = r.bool()
	p.Namespaces = r.uint()
	if n := r.len(16); n > 0 {
		p.Steps = make([]Step, n)
		for i := range p.Steps {
			r.step(&p.Steps[i])
		}
	}
	p.SeccompName = r.str()
	p.SeccompDigest = r.str()
	if n := r.len(1); n > 0 {
		p.Programs = make([][]Insn, n)
		for i := range p.Programs {
			p.Programs[i] = r.program()
		}
	}
	p.Observer = r.program()
	if n := r.len(6); n > 0 {
		p.Witness = make([]Check, n)
		for i := range p.Witness {
			p.Witness[i] = Check{Name: r.str(), Act: r.str(), Arg: r.str(), Want: r.strs(), Reason: r.str(), Forked: r.bool()}
		}
	}
	p.Worker = Worker{Argv: r.strs(), Env: r.strs(), Dir: r.str()}
	p.Limits = r.limits()
	if n := r.len(3); n > 0 {
		p.Degraded = make([]Degradation, n)
		for i := range p.Degraded {
			p.Degraded[i] = Degradation{Feature: r.str(), Why: r.str(), Remedy: r.str()}
		}
	}
}

func (r *reader) program() []Insn {
	n := r.len(8)
	if n == 0 {
		return nil
	}
	prog := make([]Insn, n)
	for i := range prog {
		b := r.b[i*8:]
		prog[i] = Insn{
			Code: uint16(b[0]) | uint16(b[1])<<8, Jt: b[2], Jf: b[3],
			K: uint32(b[4]) | uint32(b[5])<<8 | uint32(b[6])<<16 | uint32(b[7])<<24,
		}
	}
	r.b = r.b[n*8:]
	return prog
}
