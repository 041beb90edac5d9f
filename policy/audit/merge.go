package audit

import "time"

// Merger turns a flood of equal records into few, and loses none of their
// count. The first of a kind comes back at once; further ones are counted, and
// come back as one record each from Flush. Memory is bounded: past Kinds
// different ones, records are counted by operation, decision, rule and source
// alone, without their target.
//
// A Merger is a value of one goroutine. It has no clock.
type Merger struct {
	// Kinds bounds how many different records are told apart between two calls of
	// Flush; 0 is DefaultKinds.
	Kinds int

	seen  map[kind]*count
	order []*count
	other int // of order: those without a target
}

// DefaultKinds is how many different records of one cell are told apart.
const DefaultKinds = 1000

// maxOther bounds the kinds without a target: operations, decisions and rules
// are closed sets of a policy, and what lies beyond is one more kind.
const maxOther = 256

type count struct {
	record Record
	times  int64
	last   time.Time
	merged bool // stands for records without their target
}

// kind is a record without what differs from one occurrence to the next.
type kind struct {
	session                        string
	generation, cell, pid          int
	scope, program, op, target     string
	decision, rule, reason, policy string
	source                         Source
}

func kindOf(r Record) kind {
	return kind{session: r.Session, generation: r.Generation, cell: r.Cell, pid: r.PID, scope: r.Scope, program: r.Program,
		op: r.Op, target: r.Target, decision: r.Decision, rule: r.Rule, reason: r.Reason, policy: r.Policy, source: r.Source}
}

// Add takes one record in. It returns the record and true when it is to be
// written now.
func (m *Merger) Add(r Record) (Record, bool) {
	if m.seen == nil {
		m.seen = map[kind]*count{}
	}
	kinds := m.Kinds
	if kinds <= 0 {
		kinds = DefaultKinds
	}
	if c := m.seen[kindOf(r)]; c != nil {
		c.add(r)
		return Record{}, false
	}
	if len(m.order)-m.other < kinds {
		m.put(kindOf(r), &count{record: r, last: r.Time})
		return r, true
	}
	r.Target, r.PID, r.Program, r.Scope = "", 0, "", ""
	c := m.seen[kindOf(r)]
	if c == nil && m.other >= maxOther {
		r.Op, r.Decision, r.Rule, r.Reason = OpOther, "", "", ""
		c = m.seen[kindOf(r)]
	}
	if c == nil {
		c = &count{record: r, merged: true}
		c.record.Facts = nil
		m.put(kindOf(r), c)
		m.other++
	}
	c.add(r)
	return Record{}, false
}

func (m *Merger) put(k kind, c *count) {
	m.seen[k] = c
	m.order = append(m.order, c)
}

func (c *count) add(r Record) {
	c.times += r.Times()
	c.last = r.Time
}

// Flush returns what was counted since the last call, and forgets it.
func (m *Merger) Flush() []Record {
	var out []Record
	for _, c := range m.order {
		if c.times == 0 {
			continue
		}
		r := c.record
		r.Count, r.Time = c.times, c.last
		r.Facts = map[string]any{"merged": "further ones like the record before"}
		if c.merged {
			r.Facts = map[string]any{"merged": "targets that are not told apart"}
		}
		out = append(out, r)
	}
	m.seen, m.order, m.other = nil, nil, 0
	return out
}
