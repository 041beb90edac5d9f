package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cellblock/kernel/definition"
	"cellblock/policy/audit"
)

// keeper are the options of sessions that keep under one name.
func keeper(t *testing.T, tier Tier) Options {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state")
	return Options{SessionDir: t.TempDir(), Name: "notes", Tier: tier, State: []string{state}, Definitions: filepath.Join(state, "definitions"), KeepDefinitions: true}
}

// reopen ends a session and opens the next of its name.
func reopen(t *testing.T, s *Session) *Session {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, s.opts)
}

func TestDefinitionsComeBack(t *testing.T) {
	for _, how := range []string{"in a later session", "after a crash", "after the time limit", "after an abort"} {
		tiers(t, Options{}, func(t *testing.T, s *Session) {
			t.Run(how, func(t *testing.T) {
				s := open(t, keeper(t, s.opts.Tier))
				run(t, s, "import json as j\nK = 6\nclass C:\n    def m(self): return K * 7\ndef f(): return j.dumps(C().m())\nmade = list()")
				switch how {
				case "in a later session":
					s = reopen(t, s)
				case "after a crash":
					run(t, s, "def never(): pass\nimport os; os._exit(3)")
				case "after the time limit":
					s.Call(t.Context(), Call{Code: "import time; time.sleep(600)", Timeout: 200 * time.Millisecond})
				case "after an abort":
					running := make(chan Result)
					go func() { running <- run(t, s, "print('up', flush=True)\nimport time; time.sleep(600)") }()
					for s.Info(); ; time.Sleep(10 * time.Millisecond) {
						s.mu.Lock()
						up := s.running.worker != nil
						s.mu.Unlock()
						if up {
							break
						}
					}
					s.Abort()
					<-running
				}
				r := run(t, s, "f()")
				if r.Details.Value == nil || *r.Details.Value != "'42'" {
					t.Fatalf("%q", r.Text())
				}
				got := r.Details.Restored
				if got == nil || !slices.Equal(got.Names, []string{"C", "K", "f", "j"}) || len(got.Missing) != 1 || got.Missing[0].Name != "made" || !strings.Contains(r.Text(), "[definitions restored: C, K, f, j; not restored: made (") {
					t.Fatalf("%+v\n%s", got, r.Text())
				}
				if r := run(t, s, "import inspect; inspect.getsource(f), 'never' in globals()"); !strings.Contains(r.Text(), "return j.dumps") || !strings.HasSuffix(r.Text(), "False)") || r.Details.Restored != nil {
					t.Fatalf("%q", r.Text())
				}
			})
		})
	}
}

func TestWhatCannotBeRestoredIsToldAndKept(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		s = open(t, keeper(t, s.opts.Tier))
		local := filepath.Join(s.dir, "local.py")
		write := func(text string) {
			if err := os.WriteFile(local, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("v = 5")
		run(t, s, "import local\nclass C:\n    w = local.v\ndef f(): return 1")
		os.Remove(local)
		os.RemoveAll(filepath.Join(s.dir, "__pycache__"))
		s = reopen(t, s)
		r := run(t, s, "f()")
		if r.IsError || len(r.Details.Restored.Missing) != 2 || !strings.Contains(r.Text(), "local (ModuleNotFoundError: No module named 'local')") || !strings.Contains(r.Text(), "C (NameError: name 'local' is not defined)") {
			t.Fatalf("%q", r.Text())
		}
		// It is tried again, unless the name has got another meaning meanwhile.
		run(t, s, "C = len('x')")
		write("v = 6")
		s = reopen(t, s)
		if r := run(t, s, "local.v, 'C' in globals()"); r.Details.Value == nil || *r.Details.Value != "(6, False)" {
			t.Fatalf("%q", r.Text())
		}
	})
}

func TestAStatementThatEndsItsWorkerIsLeftOut(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		o := keeper(t, s.opts.Tier)
		o.Audit = auditFile(t)
		s = open(t, o)
		run(t, s, "import os\nclass Bad:\n    if os.path.exists('deadly'): os._exit(3)\ndef f(): return 1")
		if err := os.WriteFile(filepath.Join(s.dir, "deadly"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		s = reopen(t, s)
		r := run(t, s, "f()")
		if r.IsError || !strings.Contains(r.Text(), "[definitions restored: f, os; not restored: Bad (it ended the worker: KernelExited: python kernel exited (3))]\n1") {
			t.Fatalf("%q", r.Text())
		}
		restores := 0
		for _, record := range recorded(t, s) {
			if record.Op == audit.OpCellStart && record.Facts["restores"] == true {
				restores++
			}
		}
		if restores != 4 { // two before the death, two after it
			t.Errorf("%d restored statements are in the record", restores)
		}
	})
}

func TestDefinitionsAreForgotten(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		s = open(t, keeper(t, s.opts.Tier))
		run(t, s, "def f(): pass")
		if r := s.Call(t.Context(), Call{Code: "f() or 1\ndef g(): return 2", ForgetDefinitions: true}); r.Text() != "1" && r.Text() != "(no output)" {
			t.Fatalf("%q", r.Text())
		}
		s = reopen(t, s)
		if got := run(t, s, "'f' in globals(), g()"); *got.Details.Value != "(False, 2)" {
			t.Fatalf("%q", got.Text())
		}
		// So does a reset, in whichever way it is carried out.
		for _, before := range []string{"1", "import subprocess; subprocess.run(['true'])"} {
			run(t, s, "def g(): return 2")
			run(t, s, before)
			if r := s.Call(t.Context(), Call{Reset: true}); r.IsError {
				t.Fatal(r)
			}
			s = reopen(t, s)
			if got := run(t, s, "'g' in globals()"); *got.Details.Value != "False" || got.Details.Restored != nil {
				t.Fatalf("after %s: %q", before, got.Text())
			}
		}
	})
}

func TestOnlyChosenCellsAreKept(t *testing.T) {
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		o := keeper(t, s.opts.Tier)
		o.KeepDefinitions = false
		s = open(t, o)
		run(t, s, "def f(): return 1")
		s.Call(t.Context(), Call{Code: "def g(): return 2\ndef h(): return 3", KeepDefinitions: true})
		run(t, s, "def h(): return 4")
		run(t, s, "import os; os._exit(1)")
		if got := run(t, s, "[n for n in 'fgh' if n in globals()]"); *got.Details.Value != "['g']" {
			t.Fatalf("%q", got.Text())
		}
		// Without a place they last as long as the session.
		s = open(t, Options{Tier: s.opts.Tier})
		s.Call(t.Context(), Call{Code: "def g(): return 2", KeepDefinitions: true})
		run(t, s, "import os; os._exit(1)")
		if got := value(t, s, "g()"); got != "2" {
			t.Fatal(got)
		}
	})
}

func TestOneSessionAtATimeHasAName(t *testing.T) {
	s := open(t, keeper(t, TierProcess))
	if _, err := Open(s.opts); !errors.Is(err, definition.ErrInUse) {
		t.Fatal(err)
	}
	o := s.opts
	o.Name = "other"
	open(t, o)
	for name, change := range map[string]func(*Options){
		"no name": func(o *Options) { o.Name = "" }, "a line feed": func(o *Options) { o.Name = "a\nb" },
		"a place that sessions can change": func(o *Options) { o.Definitions = o.SessionDir },
	} {
		o := s.opts
		o.Name = "third"
		change(&o)
		if _, err := Open(o); !errors.As(err, new(*OptionError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestARestoredDefinitionCallsNothing: what it did once at the host is not done again.
func TestARestoredDefinitionCallsNothing(t *testing.T) {
	asked := 0
	tiers(t, Options{}, func(t *testing.T, s *Session) {
		o := keeper(t, s.opts.Tier)
		o.Input = func(string, bool) (string, error) { asked++; return "x", nil }
		s, asked = open(t, o), 0
		run(t, s, "class C:\n    v = input()")
		if s = reopen(t, s); asked != 1 {
			t.Fatalf("control: asked %d times", asked)
		}
		if r := run(t, s, "1"); asked != 1 || !strings.Contains(r.Text(), "not restored: C (") || !strings.Contains(r.Text(), "calls nothing") {
			t.Fatalf("asked %d times: %q", asked, r.Text())
		}
	})
}

// TestAWorkerCannotMakeDefinitions: what is kept is text that the host has sent,
// whatever a worker reports.
func TestAWorkerCannotMakeDefinitions(t *testing.T) {
	reply := func(kept string) string {
		return `say({"id": m["id"], "value": {"status": "ok", "definitions": {"kept": [` + kept + `], "others": []}}})`
	}
	for name, c := range map[string]struct {
		kept  string
		fails bool
		names int
	}{
		"control":            {`{"cell": 1, "start": 0, "end": 5, "kind": "constant", "names": ["x"]}`, false, 1},
		"a cell never sent":  {`{"cell": 7, "start": 0, "end": 5, "kind": "constant", "names": ["x"]}`, false, 0},
		"beyond its end":     {`{"cell": 1, "start": 0, "end": 99, "kind": "constant", "names": ["x"]}`, true, 0},
		"in a character":     {`{"cell": 1, "start": 0, "end": 8, "kind": "constant", "names": ["x"]}`, true, 0},
		"before its start":   {`{"cell": 1, "start": 5, "end": 2, "kind": "constant", "names": ["x"]}`, true, 0},
		"source of its own":  {`{"cell": 1, "start": 0, "end": 5, "kind": "constant", "names": ["x"], "source": "evil()"}`, true, 0},
		"of no known kind":   {`{"cell": 1, "start": 0, "end": 5, "kind": "evil", "names": ["x"]}`, true, 0},
		"no number as place": {`{"cell": 1, "start": -1, "end": 5, "kind": "constant", "names": ["x"]}`, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := withFake(t, reply(c.kept), Options{KeepDefinitions: true})
			r := run(t, s, "x = 1;'é'")
			if died := r.Details.Error != nil && r.Details.Error.Name == KernelExited; died != c.fails {
				t.Fatalf("%+v", r.Details.Error)
			}
			if n := len(s.keep.kept.Statements); n != c.names {
				t.Errorf("%d statements are kept: %+v", n, s.keep.kept)
			}
		})
	}
}
