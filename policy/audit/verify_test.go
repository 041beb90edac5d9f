package audit

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

// small is a closed log of four records, and where each of its bytes belongs.
func small(t *testing.T) (path string, data, head []byte, lineOf func(int) int64) {
	t.Helper()
	l := newLog(t, Options{})
	must(t, l.Append(event("write", "/etc/hosts")))
	must(t, l.Append(event("chmod", "/etc/passwd"), event("remove", "/a/\u00e9")))
	must(t, l.Close(Record{Session: "s1", Op: OpSessionEnd, Source: SourceKernel, Facts: map[string]any{"cells": 3}}))
	data, err := os.ReadFile(l.Path())
	must(t, err)
	head, err = os.ReadFile(l.Path() + HeadSuffix)
	must(t, err)
	return l.Path(), data, head, func(at int) int64 { return int64(bytes.Count(data[:at], []byte("\n"))) + 1 }
}

// check is Verify of bytes: the tests below look at thousands of logs.
func check(t *testing.T, data, head []byte) Verification {
	t.Helper()
	h, whole, err := parseHead(head)
	c := checker{head: h, headErr: err, whole: whole, found: Verification{Head: Genesis, Closed: h.Closed}}
	v, err := c.run(bytes.NewReader(data))
	must(t, err)
	return v
}

func TestAChangeOfAnyByteIsFoundAndNamed(t *testing.T) {
	path, data, head, lineOf := small(t)
	flip(t, path, len(data)/2)
	if v := verify(t, path); v.Clean() || v.Findings[0].Line != lineOf(len(data)/2) {
		t.Fatalf("in the file: %+v", v)
	}
	for at := range data {
		for _, to := range []byte{data[at] ^ 1, data[at] ^ 0x20, '0', '1', '9', '\n', ' ', '"', '}'} {
			if to == data[at] {
				continue
			}
			changed := bytes.Clone(data)
			changed[at] = to
			v := check(t, changed, head)
			if v.Clean() {
				t.Fatalf("byte %d of record %d: %q for %q was not found", at, lineOf(at), to, data[at])
			}
			if first := v.Findings[0]; first.Line != lineOf(at) {
				t.Fatalf("byte %d of record %d: %q for %q: %v", at, lineOf(at), to, data[at], v.Findings)
			}
		}
	}
}

func TestACutAtAnyByteIsFoundAndNamed(t *testing.T) {
	path, data, head, lineOf := small(t)
	must(t, os.Truncate(path, int64(len(data)/2)))
	if v := verify(t, path); v.Clean() || v.Findings[0].Line != lineOf(len(data)/2) {
		t.Fatalf("in the file: %+v", v)
	}
	for end := range data {
		v := check(t, data[:end], head)
		if v.Clean() || v.Findings[0].Line != lineOf(end) {
			t.Fatalf("cut after %d bytes, in record %d: %+v", end, lineOf(end), v)
		}
	}
}

func TestAByteMoreOrLessIsFoundAndNamed(t *testing.T) {
	_, data, head, lineOf := small(t)
	for at := range data {
		for what, changed := range map[string][]byte{
			"one less":   append(bytes.Clone(data[:at]), data[at+1:]...),
			"one more":   append(append(bytes.Clone(data[:at]), 'x'), data[at:]...),
			"a new line": append(append(bytes.Clone(data[:at]), '\n'), data[at:]...),
		} {
			v := check(t, changed, head)
			// Taking or adding a byte beside its like gives the same text.
			if v.Clean() || v.Findings[0].Line > lineOf(at)+1 || v.Findings[0].Line < lineOf(at) {
				t.Fatalf("%s at byte %d of record %d: %+v", what, at, lineOf(at), v)
			}
		}
	}
}

func TestRecordsThatAreTakenAddedOrMovedAreFound(t *testing.T) {
	path, data, _, _ := small(t)
	lines := bytes.SplitAfter(data, []byte("\n"))[:4]
	for _, c := range []struct {
		name  string
		order []int
		first int64
	}{
		{"the first taken", []int{1, 2, 3}, 1},
		{"one in the middle taken", []int{0, 2, 3}, 2},
		{"two in the middle taken", []int{0, 3}, 2},
		{"the last taken", []int{0, 1, 2}, 4},
		{"two moved", []int{0, 2, 1, 3}, 2},
		{"one twice", []int{0, 1, 1, 2, 3}, 3},
		{"the last twice", []int{0, 1, 2, 3, 3}, 5},
		{"all taken", nil, 1},
	} {
		var text []byte
		for _, i := range c.order {
			text = append(text, lines[i]...)
		}
		must(t, os.WriteFile(path, text, 0o600))
		if v := verify(t, path); v.Clean() || v.Findings[0].Line != c.first {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

func TestAChangeOfTheHeadIsFound(t *testing.T) {
	path, data, head, _ := small(t)
	for at := range head {
		for _, to := range []byte{head[at] ^ 1, ' ', '0', '\n'} {
			if to == head[at] {
				continue
			}
			changed := bytes.Clone(head)
			changed[at] = to
			if v := check(t, data, changed); v.Clean() {
				t.Fatalf("byte %d: %q for %q was not found", at, to, head[at])
			}
		}
	}
	for _, end := range []int{0, 1, slotSize, headSize - 1} {
		must(t, os.WriteFile(path+HeadSuffix, head[:end], 0o600))
		if v := verify(t, path); v.Clean() {
			t.Errorf("a head of %d bytes passed", end)
		}
	}
	must(t, os.Remove(path+HeadSuffix))
	if v := verify(t, path); v.Clean() || !strings.Contains(v.Findings[0].Text, "missing") {
		t.Errorf("no head: %+v", v)
	}
}

func TestANewChainIsFoundByTheHashThatWasNoted(t *testing.T) {
	path, _, _, _ := small(t)
	noted := verify(t, path).Head
	if v := verify(t, path, Expect(noted)); !v.Clean() {
		t.Errorf("%+v", v)
	}
	// Who may write both files makes a chain that is right in itself.
	must(t, os.Remove(path))
	must(t, os.Remove(path+HeadSuffix))
	l, err := Open(path, Options{})
	must(t, err)
	must(t, l.Close(event("write", "/harmless")))
	if v := verify(t, path); !v.Clean() {
		t.Errorf("%+v", v)
	}
	if v := verify(t, path, Expect(noted)); v.Clean() {
		t.Error("the noted hash was not missed")
	}
}

func TestALogIsReadWithinBounds(t *testing.T) {
	long := strings.Repeat("x", 3*MaxLine)
	var lines []int64
	var errs []error
	for e, err := range Read(strings.NewReader(long + "\n{}\n" + long)) {
		if len(e.Raw) > MaxLine {
			t.Errorf("line %d: %d bytes", e.Line, len(e.Raw))
		}
		lines, errs = append(lines, e.Line), append(errs, err)
	}
	if len(lines) != 3 || !errors.Is(errs[0], ErrLineTooLong) || errs[1] == nil || !errors.Is(errs[2], ErrTorn) {
		t.Errorf("%v %v", lines, errs)
	}
}

func FuzzRead(f *testing.F) {
	line, err := appendRecord(nil, &Record{Seq: 1, Op: "write", Target: "/a", Source: SourceOS, Prev: Genesis})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(line, '\n'))
	f.Add([]byte("{}\n\n{\"seq\":1}\ntorn"))
	f.Add([]byte(`{"seq":1,"op":"x","facts":{"a":[[[1e999]]]},"prev":"` + Genesis + "\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := int64(0)
		for e, err := range Read(bytes.NewReader(data)) {
			n++
			if e.Line != n {
				t.Fatalf("line %d is called %d", n, e.Line)
			}
			if err != nil {
				continue
			}
			again, err := appendRecord(nil, &e.Record)
			if err != nil {
				continue // a time or number that JSON has and Go cannot write
			}
			if _, err := decodeRecord(again); err != nil {
				t.Fatalf("%s\nwritten again: %s\n%v", e.Raw, again, err)
			}
		}
		if want := int64(bytes.Count(data, []byte("\n"))); n < want || n > want+1 {
			t.Fatalf("%d lines of %d", n, want)
		}
		c := checker{head: Head{Count: 1, Hash: hashOf(line)}, whole: true}
		v, err := c.run(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if v.Clean() && !bytes.HasPrefix(data, line) {
			t.Fatal("another log passed for the one that the head names")
		}
	})
}
