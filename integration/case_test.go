package integration

import (
	"testing"
	"time"
)

// cell is one step of a case: a call, and what its reply must be. Of the
// expectations only the ones that are set are checked, but a cell without err
// must succeed.
type cell struct {
	code   string
	reset  bool          // the step is a reset; code is not used
	limit  time.Duration // the cell's own time limit
	pause  time.Duration // waited before the call
	value  string        // text of the trailing value
	silent bool          // no value may be shown
	err    string        // ename
	any    bool          // success and error are both right; check decides
	stdout string        // whole stdout
	stderr string        // part of stderr
	check  func(t *testing.T, s *session, r reply)
}

// bugCase is one case: its id and title, the options it states, the cells of
// one session in their order, or a function where cells do not say it all.
type bugCase struct {
	id, title string
	needs     []string
	opts      []option
	cells     []cell
	do        func(t *testing.T, c bugCase)
}

// runCases runs a group's table, a subtest a case.
func runCases(t *testing.T, cases []bugCase) {
	for _, c := range cases {
		t.Run(c.id+" "+c.title, func(t *testing.T) {
			t.Parallel()
			require(t, c.needs...)
			if c.do != nil {
				c.do(t, c)
				return
			}
			runCells(t, open(t, c.opts...), c.cells)
		})
	}
}

// runCells runs the steps in one session and checks that it is alive after.
func runCells(t *testing.T, s *session, cells []cell) {
	t.Helper()
	s.t = t
	for i, c := range cells {
		time.Sleep(c.pause)
		if c.reset {
			s.reset()
			continue
		}
		start := time.Now()
		r := s.runLimit(c.code, c.limit)
		took := time.Since(start)
		failed := r.IsError || r.Details.Status != "ok"
		switch {
		case c.any:
		case c.err != "" && r.ename() != c.err:
			t.Errorf("cell %d: ename %q, want %q: %s", i+1, r.ename(), c.err, r)
		case c.err == "" && failed:
			t.Errorf("cell %d failed: %s", i+1, r)
		}
		if c.value != "" && r.value() != c.value {
			t.Errorf("cell %d: value %s, want %s: %s", i+1, r.value(), c.value, r)
		}
		if c.silent && r.Details.Value != nil {
			t.Errorf("cell %d shows %s, want nothing", i+1, r.value())
		}
		if c.stdout != "" && r.Details.Stdout != c.stdout {
			t.Errorf("cell %d: stdout %q, want %q", i+1, r.Details.Stdout, c.stdout)
		}
		if c.stderr != "" {
			contains(t, "stderr", r.Details.Stderr, c.stderr)
		}
		if c.limit > 0 && took > c.limit+15*time.Second {
			t.Errorf("cell %d: its limit is %v and the reply took %v", i+1, c.limit, took)
		}
		if c.check != nil {
			c.check(t, s, r)
		}
	}
	s.alive()
}

// times is a slice of n equal cells.
func times(n int, c cell) []cell {
	all := make([]cell, n)
	for i := range all {
		all[i] = c
	}
	return all
}
