package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// newLog opens a log in a directory of its own.
func newLog(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(filepath.Join(t.TempDir(), "audit", "s1.jsonl"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func event(op, target string) Record {
	return Record{Session: "s1", Generation: 1, Cell: 2, Op: op, Target: target, Source: SourceHook,
		Decision: Denied, Rule: "fs.write.outside", Reason: "not here"}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func verify(t testing.TB, path string, expect ...Expect) Verification {
	t.Helper()
	v, err := Verify(path, expect...)
	must(t, err)
	return v
}

func records(t testing.TB, path string) []Record {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	var out []Record
	for e, err := range Read(bytes.NewReader(data)) {
		must(t, err)
		out = append(out, e.Record)
	}
	return out
}

func TestALogIsAChainThatVerifies(t *testing.T) {
	l := newLog(t, Options{})
	must(t, l.Append(event("write", "/etc/hosts"), event("remove", "/etc/passwd")))
	must(t, l.Append(Record{Session: "s1", Op: OpCellEnd, Source: SourceKernel, Facts: map[string]any{"status": "ok", "n": 1}}))
	if v := verify(t, l.Path()); !v.Clean() || v.Records != 3 || !v.Live || v.Closed {
		t.Errorf("while it is written: %+v", v)
	}
	must(t, l.Close())
	v := verify(t, l.Path())
	if !v.Clean() || v.Records != 3 || v.Live || !v.Closed || len(v.Notes) != 0 || v.Head != l.head.Hash {
		t.Errorf("closed: %+v", v)
	}
	got := records(t, l.Path())
	if got[0].Prev != Genesis || got[0].Target != "/etc/hosts" || got[1].Seq != 2 || got[2].Facts["status"] != "ok" || got[2].Time.IsZero() {
		t.Errorf("%+v", got)
	}
	if err := l.Append(event("write", "/x")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	for _, path := range []string{l.Path(), l.Path() + HeadSuffix} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if info, _ := os.Stat(filepath.Dir(l.Path())); info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v", info.Mode())
	}
}

func TestALogGoesOnWhereItEnded(t *testing.T) {
	l := newLog(t, Options{})
	must(t, l.Append(event("write", "/a")))
	must(t, l.Close())
	again, err := Open(l.Path(), Options{})
	must(t, err)
	must(t, again.Append(event("write", "/b")))
	must(t, again.Close(event("write", "/c")))
	if v := verify(t, l.Path()); !v.Clean() || v.Records != 3 || !v.Closed {
		t.Errorf("%+v", v)
	}
}

func TestTwoWritersOfOneFileAreRefused(t *testing.T) {
	l := newLog(t, Options{})
	if _, err := Open(l.Path(), Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("a second writer: %v", err)
	}
	must(t, l.Append(event("write", "/a")))
	must(t, l.Close())
	again, err := Open(l.Path(), Options{})
	must(t, err)
	again.Close()
}

func TestOnlyAFileOfOnesOwnIsOpened(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	must(t, os.Mkdir(dir, 0o700))
	outside := filepath.Join(t.TempDir(), "other")
	must(t, os.WriteFile(outside, nil, 0o600))
	must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	must(t, os.Link(outside, filepath.Join(dir, "second-name")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "no-head"), []byte("{}\n"), 0o600))
	for _, name := range []string{"link", "second-name", "fifo", "directory", "no-head"} {
		if l, err := Open(filepath.Join(dir, name), Options{}); err == nil {
			l.Close()
			t.Errorf("%s was opened", name)
		} else if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the error does not name it: %v", name, err)
		}
	}
	must(t, os.Chmod(dir, 0o755))
	if l, err := Open(filepath.Join(dir, "new"), Options{}); err == nil {
		l.Close()
		t.Error("a directory that is open to others was used")
	}
	if info, err := os.Stat(outside); err != nil || info.Size() != 0 {
		t.Errorf("the file behind the link: %v, %v", info, err)
	}
}

func TestWhatAKilledWriterHadHalfWrittenIsCutOffAndSaid(t *testing.T) {
	for _, torn := range []string{`{"seq":2,"ti`, strings.Repeat("x", 3*MaxLine)} {
		l := newLog(t, Options{})
		must(t, l.Append(event("write", "/a")))
		killed(t, l)
		appendTo(t, l.Path(), torn)
		if v := verify(t, l.Path()); !v.Clean() || len(v.Notes) == 0 {
			t.Errorf("before the repair: %+v", v)
		}
		again, err := Open(l.Path(), Options{})
		must(t, err)
		must(t, again.Append(event("write", "/b")))
		must(t, again.Close())
		got := records(t, l.Path())
		if len(got) != 3 || got[1].Op != OpRepair || got[1].Facts["tornBytes"] != json.Number(fmt.Sprint(len(torn))) {
			t.Errorf("%+v", got)
		}
		if v := verify(t, l.Path()); !v.Clean() {
			t.Errorf("%+v", v)
		}
	}
}

func TestARecordThatWasNotYetAcknowledgedIsKeptAndSaid(t *testing.T) {
	l := newLog(t, Options{})
	must(t, l.Append(event("write", "/a")))
	head, err := os.ReadFile(l.Path() + HeadSuffix)
	must(t, err)
	must(t, l.Append(event("write", "/b")))
	killed(t, l)
	must(t, os.WriteFile(l.Path()+HeadSuffix, head, 0o600)) // killed between the two writes
	if v := verify(t, l.Path()); !v.Clean() || v.Records != 2 {
		t.Errorf("%+v", v)
	}
	again, err := Open(l.Path(), Options{})
	must(t, err)
	must(t, again.Close())
	if got := records(t, l.Path()); len(got) != 3 || got[2].Op != OpRepair || got[2].Facts["unacknowledged"] != json.Number("1") {
		t.Errorf("%+v", got)
	}
}

func TestNothingIsAppendedToWhatWasTamperedWith(t *testing.T) {
	for name, tamper := range map[string]func(t *testing.T, path string){
		"a record cut off":  func(t *testing.T, path string) { must(t, os.Truncate(path, firstLine(t, path))) },
		"everything cut":    func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) },
		"a record added":    func(t *testing.T, path string) { appendTo(t, path, `{"seq":3,"op":"x","source":"os","prev":""}`+"\n") },
		"the head taken":    func(t *testing.T, path string) { must(t, os.Remove(path+HeadSuffix)) },
		"the head emptied":  func(t *testing.T, path string) { must(t, os.Truncate(path+HeadSuffix, 0)) },
		"a record replaced": func(t *testing.T, path string) { flip(t, path, 40) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, Options{})
			must(t, l.Append(event("write", "/a"), event("write", "/b")))
			must(t, l.Close())
			tamper(t, l.Path())
			before, _ := os.ReadFile(l.Path())
			if again, err := Open(l.Path(), Options{}); err == nil {
				again.Close()
				t.Error("opened")
			}
			if after, _ := os.ReadFile(l.Path()); !bytes.Equal(before, after) {
				t.Error("the evidence was changed")
			}
		})
	}
}

func TestAChangeUnderTheWriterIsSaid(t *testing.T) {
	for name, tamper := range map[string]func(path string) error{
		"longer":  func(path string) error { return os.Truncate(path, 10000) },
		"shorter": func(path string) error { return os.Truncate(path, 10) },
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, Options{})
			must(t, l.Append(event("write", "/a")))
			must(t, tamper(l.Path()))
			if err := l.Append(event("write", "/b")); !errors.Is(err, ErrChanged) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestALogHasAnEnd(t *testing.T) {
	l := newLog(t, Options{MaxBytes: 2000})
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = l.Append(event("write", "/a"))
	}
	if !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "make room") {
		t.Fatalf("%v", err)
	}
	must(t, l.Close())
	if v := verify(t, l.Path()); !v.Clean() || v.Records != int64(n-1) {
		t.Errorf("%d acknowledged: %+v", n-1, v)
	}
}

func TestTextsCannotPoseAsRecordsOrActOnATerminal(t *testing.T) {
	l := newLog(t, Options{})
	nasty := "/tmp/\n{\"seq\":1}\x1b[2J\x9b2J\u202e\u2028\u200b\x7f\xff\x00\"\\</x>"
	r := event("write", nasty)
	r.Facts = map[string]any{"argv": []string{nasty}}
	must(t, l.Append(r))
	must(t, l.Close())
	data, _ := os.ReadFile(l.Path())
	if bytes.Count(data, []byte("\n")) != 1 || bytes.ContainsAny(data, "\x1b\x7f\x00\u202e\u2028") || bytes.Contains(data, []byte("\xc2\x9b")) {
		t.Errorf("%q", data)
	}
	got := records(t, l.Path())[0]
	if want := strings.ReplaceAll(nasty, "\x9b", `\x9b`); got.Target != strings.ReplaceAll(want, "\xff", `\xff`) {
		t.Errorf("%q", got.Target)
	}
}

// TestEachNameHasATextOfItsOwn: names that differ in bytes are told apart in a record,
// and are known again from it.
func TestEachNameHasATextOfItsOwn(t *testing.T) {
	names := []string{"/a\xff", `/a\xff`, `/a\x5cxff`, `/a\x5c\xff`, `/a\\xff`, "/a\\\xff", `/a\xFF`, `/a\xf`, "/a\\x\xff", `/a\`, "/a\x5c", "/a\ufffd", "/a\xef\xbf", "/a\n", `/a\n`, "/é"}
	l := newLog(t, Options{})
	for _, n := range names {
		must(t, l.Append(event("write", n)))
	}
	must(t, l.Close())
	seen := map[string]string{}
	for i, r := range records(t, l.Path()) {
		if was, ok := seen[r.Target]; ok && was != names[i] {
			t.Errorf("%q and %q are both %q", was, names[i], r.Target)
		}
		seen[r.Target] = names[i]
		if got := Unescape(r.Target); got != names[i] {
			t.Errorf("%q is recorded as %q, which is read as %q", names[i], r.Target, got)
		}
	}
}

func FuzzUnescape(f *testing.F) {
	f.Add("/a\\x5c\xff")
	f.Fuzz(func(t *testing.T, name string) {
		line, err := appendRecord(nil, &Record{Seq: 1, Op: "write", Target: name, Source: SourceOS, Prev: Genesis})
		must(t, err)
		r, err := decodeRecord(line)
		must(t, err)
		if got := Unescape(r.Target); got != name {
			t.Errorf("%q is recorded as %q, which is read as %q", name, r.Target, got)
		}
	})
}

func TestLongTextsAreCutAndRecordsHaveABound(t *testing.T) {
	l := newLog(t, Options{})
	r := event("write", "/"+strings.Repeat("é", maxTarget))
	must(t, l.Append(r))
	if got := records(t, l.Path())[0].Target; len(got) > maxTarget || !strings.HasSuffix(got, "bytes more") {
		t.Errorf("%d bytes, …%s", len(got), got[len(got)-40:])
	}
	facts := map[string]any{}
	for i := range 1000 {
		facts[fmt.Sprint(i)] = strings.Repeat("x", maxText)
	}
	if err := l.Append(Record{Op: "x", Source: SourceKernel, Facts: facts}); err == nil {
		t.Error("a record of 4 MB was taken")
	}
	must(t, l.Append(event("write", "/b")))
	must(t, l.Close())
	if v := verify(t, l.Path()); !v.Clean() || v.Records != 2 {
		t.Errorf("%+v", v)
	}
}

// killed lets go of a log as a SIGKILL does.
func killed(t testing.TB, l *Log) {
	t.Helper()
	l.syncing.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.file.Close()
	l.head.file.Close()
}

func appendTo(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString(text)
	must(t, err)
}

func flip(t testing.TB, path string, at int) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	data[at] ^= 1
	must(t, os.WriteFile(path, data, 0o600))
}

func firstLine(t testing.TB, path string) int64 {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return int64(bytes.IndexByte(data, '\n') + 1)
}
