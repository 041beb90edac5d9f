package parity

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cellblock/integration/need"
	"cellblock/jail"
	"cellblock/policy"
)

// TestModesAgree runs the whole table in a session of each mode.
func TestModesAgree(t *testing.T) {
	rows := table(places)
	if enforce, ok := agree(t, rules, rows); ok {
		checkErrnos(t, rows, enforce)
	}
}

// TestModesAgreeOnAList does so where what may be read is a list.
func TestModesAgreeOnAList(t *testing.T) {
	agree(t, listed, table(listedPlaces))
}

// agree runs rows in a session of each mode, and returns what became of them under
// enforce, and whether all is as it should be.
func agree(t *testing.T, rules string, rows []row) ([]outcome, bool) {
	t.Helper()
	need.Features(t, jail.UserNamespace, jail.Landlock, jail.SeccompNotify, jail.Overlay)
	got := map[policy.Mode]*[]outcome{}
	t.Run("sessions", func(t *testing.T) {
		for _, mode := range []policy.Mode{policy.Off, policy.Report, policy.Shadow, policy.Enforce} {
			out := &[]outcome{}
			got[mode] = out
			t.Run(string(mode), func(t *testing.T) {
				t.Parallel()
				s := open(t, mode, rules, rows)
				before := hostTree(t, s.base)
				*out = s.all(rows)
				if mode == policy.Shadow {
					untouched(t, before, hostTree(t, s.base))
				}
			})
		}
	})
	off, report, shadow, enforce := *got[policy.Off], *got[policy.Report], *got[policy.Shadow], *got[policy.Enforce]
	if t.Failed() {
		return nil, false
	}
	wrong := 0
	fail := func(r row, format string, args ...any) {
		if wrong++; wrong <= 60 {
			t.Errorf("%v: "+format, append([]any{r}, args...)...)
		}
	}
	denied := 0
	for i, r := range rows {
		reported := len(report[i].told) > 0
		if reported {
			denied++
		}
		if len(off[i].told) > 0 {
			fail(r, "off tells of %v", off[i].told)
		}
		if refused(off[i]) != (r.place.promoted && reported && !r.op.asks) {
			fail(r, "ends in %s in mode off, and report tells of %v", off[i].Result, report[i].told)
		}
		if reported != refused(enforce[i]) {
			fail(r, "report tells of %v, and enforce ends in %s", report[i].told, enforce[i].Result)
		}
		if refused(enforce[i]) != enforce[i].denied {
			fail(r, "enforce ends in %s and tells of %v", enforce[i].Result, enforce[i].told)
		}
		want := report[i].told
		if r.op.steps {
			want = want[:min(len(want), 1)]
		}
		told := enforce[i].told
		if r.op.again && len(told) > len(want) && strings.HasPrefix(told[len(want)], "read ") {
			told = told[:len(want)]
		}
		if !slices.Equal(want, told) {
			fail(r, "report tells of %v, enforce of %v", report[i].told, enforce[i].told)
		}
		if !slices.Equal(report[i].told, shadow[i].told) {
			fail(r, "report tells of %v, shadow of %v", report[i].told, shadow[i].told)
		}
		for _, m := range []policy.Mode{policy.Report, policy.Shadow} {
			o := (*got[m])[i]
			switch {
			case o.denied != refused(o):
				fail(r, "%s ends in %s and tells of %v", m, o.Result, o.told)
			case !o.denied && o.Seen != off[i].Seen:
				fail(r, "%s shows %q, and off %q", m, o.Seen, off[i].Seen)
			}
		}
	}
	t.Logf("%d operations, of which the policy denies %d; %d disagreements", len(rows), denied, wrong)
	return enforce, wrong == 0
}

// refused says that an operation did not come about.
func refused(o outcome) bool { return o.Result != "done" }

// hostTree is the census of what a session in mode shadow must leave alone.
func hostTree(t *testing.T, base string) map[string]string {
	all := census(t, base)
	for path := range all {
		for _, p := range []string{"/work", "/allowed"} {
			if path == base+p || strings.HasPrefix(path, base+p+"/") {
				delete(all, path)
			}
		}
	}
	return all
}

func untouched(t *testing.T, before, after map[string]string) {
	t.Helper()
	for path, was := range before {
		if after[path] != was {
			t.Errorf("%s on the host was %s, and is %q", path, was, after[path])
		}
	}
	for path, is := range after {
		if before[path] == "" {
			t.Errorf("%s is new on the host: %s", path, is)
		}
	}
}

func describe(s *unix.Stat_t) string {
	return fmt.Sprintf("%o %d:%d, %d bytes, inode %d, links %d, mtime %d, ctime %d", s.Mode, s.Uid, s.Gid, s.Size, s.Ino, s.Nlink, s.Mtim.Nano(), s.Ctim.Nano())
}
