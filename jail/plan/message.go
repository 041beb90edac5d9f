package plan

// The conversation of launcher and stage over one stream socket. The launcher
// speaks first: the encoded plan, whose first byte carries the slots that it
// made as descriptors. Then:
//
//	stage → launcher   Failed{step, call, errno}           and the stage ends
//	stage → launcher   Socket, with the socket         for each socket of the plan
//	stage → launcher   Ruleset, with Landlock's        where the worker is forked
//	stage → launcher   Listener{descriptor}            where the plan observes the stage
//	stage → launcher   Witnessed{results}
//	launcher → stage   Go                                  or it closes
//	stage → launcher   Born{pid}, with a pidfd             or Failed; Born{0} where it adopts
//	launcher → stage   Socket{address family}             any number of times
//	stage → launcher   Socket, with a new TCP socket of the jail's network
//	stage → launcher   Ended{wait status}                  and the stage ends; unless it adopted
//
// A socket belongs to the network namespace it was made in: by those that it asks for,
// the launcher connects within the jail's.
//
// Each message is a kind, a length and a body. End of file on either end means
// that the other one is gone: the stage ends at once, and the jail with it.

// Kind tells the messages apart.
type Kind byte

// The closed set of messages.
const (
	KindPlan      Kind = 'P'
	KindFailed    Kind = 'F'
	KindSocket    Kind = 'S'
	KindRuleset   Kind = 'R'
	KindListener  Kind = 'L'
	KindWitnessed Kind = 'W'
	KindGo        Kind = 'G'
	KindBorn      Kind = 'B'
	KindEnded     Kind = 'E'
)

// HeaderSize is the length of a message's header: kind and 32-bit length.
const HeaderSize = 5

// MaxMessage bounds a message's body in bytes. It is far above any plan and
// exists so that a corrupt length allocates nothing large.
const MaxMessage = 64 << 20

// AppendMessage appends a whole message to b.
func AppendMessage(b []byte, kind Kind, body []byte) []byte {
	n := len(body)
	b = append(b, byte(kind), byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	return append(b, body...)
}

// ParseHeader reads kind and length of the body.
func ParseHeader(h []byte) (Kind, int, error) {
	if len(h) < HeaderSize {
		return 0, 0, ErrCorrupt
	}
	n := uint32(h[1]) | uint32(h[2])<<8 | uint32(h[3])<<16 | uint32(h[4])<<24
	if n > MaxMessage {
		return 0, 0, ErrCorrupt
	}
	return Kind(h[0]), int(n), nil
}

// Failed says which step ended the set-up.
type Failed struct {
	// Index is the position in StepsOf(Stage); -1 before the first step.
	Index int
	// Call is the system call, Object what it was applied to.
	Call, Object string
	// Errno is the Linux error number; 0 when Text says it all.
	Errno int
	Text  string
}

// Encode returns the body of a KindFailed message.
func (f Failed) Encode() []byte {
	w := &writer{}
	w.int(int64(f.Index))
	w.str(f.Call)
	w.str(f.Object)
	w.int(int64(f.Errno))
	w.str(f.Text)
	return w.b
}

// DecodeFailed reads the body of a KindFailed message.
func DecodeFailed(b []byte) (Failed, error) {
	r := &reader{b: b}
	f := Failed{Index: int(r.int()), Call: r.str(), Object: r.str(), Errno: int(r.int()), Text: r.str()}
	return f, r.err()
}

// Result is what a check of the witness came to: the name of an errno, a value,
// or "done" for an act that was not refused.
type Result struct {
	Name string `json:"name"`
	Got  string `json:"got"`
}

// EncodeResults returns the body of a KindWitnessed message.
func EncodeResults(l []Result) []byte {
	w := &writer{}
	w.uint(uint64(len(l)))
	for _, x := range l {
		w.str(x.Name)
		w.str(x.Got)
	}
	return w.b
}

// DecodeResults reads the body of a KindWitnessed message.
func DecodeResults(b []byte) ([]Result, error) {
	r := &reader{b: b}
	l := make([]Result, r.len(2))
	for i := range l {
		l[i] = Result{Name: r.str(), Got: r.str()}
	}
	return l, r.err()
}

// EncodeInt returns the body of KindBorn (a pid) and KindEnded (a wait status).
func EncodeInt(v int) []byte {
	w := &writer{}
	w.int(int64(v))
	return w.b
}

// DecodeInt reads what EncodeInt wrote.
func DecodeInt(b []byte) (int, error) {
	r := &reader{b: b}
	v := int(r.int())
	return v, r.err()
}

func (r *reader) err() error {
	if r.bad || len(r.b) != 0 {
		return ErrCorrupt
	}
	return nil
}

// WireArgument tells the stage's program that descriptor 4 is the worker's wire.
const WireArgument = "wire"
