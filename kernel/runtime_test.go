package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cellblock/policy"
)

// The worker's own modules come compiled from the store, which no session can
// change, and a store that others could have written is not used.
func TestRuntimeIsKeptInTheLaunchersState(t *testing.T) {
	needStage(t)
	home, err := os.MkdirTemp("/var/tmp", "cellblock-test-") // /tmp is another one inside
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	if err := os.WriteFile(filepath.Join(home, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(home, "state")
	options := Options{State: []string{state}, Runtime: filepath.Join(state, "runtime")}
	const cached = `os.path.exists(sys.modules["_cellblock.serve"].__cached__)`
	for _, mode := range []policy.Mode{policy.Report, policy.Enforce} {
		options.Mode = mode
		s := open(t, options)
		if got := value(t, s, cached); got != "True" {
			t.Fatalf("%s: byte code beside the source: %s", mode, got)
		}
		run(t, s, "def names(at):\n    try: return sorted(os.listdir(at))\n    except PermissionError: return 'refused'")
		if got := value(t, s, fmt.Sprintf("names(%q), names(%q), os.path.exists(%q)", home, state, options.Runtime)); got != "(['secret', 'state'], 'refused', False)" {
			t.Errorf("%s: what a session sees of the launcher's state: %s", mode, got)
		}
		if got := value(t, s, fmt.Sprintf("%q.encode() in open(sys.modules['_cellblock.serve'].__cached__, 'rb').read(), sys.modules['_cellblock.serve'].main.__code__.co_filename == sys.modules['_cellblock.serve'].__file__", filepath.Base(home))); got != "(False, True)" {
			t.Errorf("%s: the launcher's path is in the byte code, and the worker's path of the source: %s", mode, got)
		}
		for _, where := range []string{`"` + state + `/"`, `os.path.dirname(sys.modules["_cellblock.serve"].__file__) + "/"`} {
			r := run(t, s, `open(`+where+` + "planted.py", "w")`)
			if !r.IsError || r.Details.Error.Name != "OSError" && r.Details.Error.Name != "PermissionError" {
				t.Errorf("%s: writing to %s: %+v", mode, where, r.Details.Error)
			}
		}
	}
	if err := os.Chmod(options.Runtime, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := value(t, open(t, options), cached); got != "False" {
		t.Errorf("with a store that others can write: %s", got)
	}
	if _, err := Open(Options{SessionDir: t.TempDir(), Runtime: filepath.Join(home, "elsewhere")}); err == nil {
		t.Error("a store outside the launcher's state was accepted")
	}
}

// An interpreter that a policy lets sessions change is run in jails alone: nothing of theirs
// is kept for it.
func TestAChangeableInterpreterIsNotRunOutside(t *testing.T) {
	needStage(t)
	state, environment := t.TempDir(), filepath.Join(t.TempDir(), "environment")
	if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", environment).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	document := func(place, effect, more string) *policy.Document {
		return parsed(t, "version: 1\nname: x\nfs: {"+more+"rules: [{path: \"${session}\", access: [write], effect: allow, reason: r}, {path: \""+place+"\", access: [write], effect: "+effect+", reason: r}]}\n")
	}
	for _, c := range []struct{ place, effect, want string }{
		{environment, "allow", "False"}, {environment + "/lib", "allow", "False"}, {environment + "/lib", "deny", "True"},
	} {
		s := open(t, Options{PythonBin: environment, Mode: policy.Enforce, Policy: document(c.place, c.effect, ""), State: []string{state}, Runtime: filepath.Join(state, "runtime")})
		if got := value(t, s, `os.path.exists(sys.modules["_cellblock.serve"].__cached__)`); got != c.want {
			t.Errorf("%s %s: byte code that it was run for outside of its jail: %s", c.effect, c.place, got)
		}
		_, err := s.extensionPython()
		if refused := err != nil && strings.Contains(err.Error(), "cells can change it"); refused != (c.effect == "allow") {
			t.Errorf("%s %s: for extensions: %v", c.effect, c.place, err)
		}
	}
	// A script is asked what it stands for, unless they could have written it.
	shim, ran := filepath.Join(environment, "shim"), filepath.Join(state, "ran")
	if err := os.WriteFile(shim, []byte("#!/bin/sh\n: >"+ran+"\nexec /usr/bin/python3 \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, lists := range []string{"", "defaults: {exec: {effect: deny, reason: r}}, "} {
		s, err := Open(Options{SessionDir: t.TempDir(), PythonBin: shim, Mode: policy.Enforce, Policy: document(environment, "allow", lists)})
		if err == nil {
			err = s.Start(t.Context())
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "cells can change") {
			t.Errorf("a script that they can change (%q): %v", lists, err)
		}
	}
	if _, err := os.Lstat(ran); err == nil {
		t.Error("a script that they can change was run")
	}
	s := open(t, Options{PythonBin: shim, Mode: policy.Enforce, Policy: document(environment, "deny", "")})
	if got := value(t, s, "6 * 7"); got != "42" {
		t.Error(got)
	}
	if _, err := os.Lstat(ran); err != nil {
		t.Errorf("one that they cannot change was not asked: %v", err)
	}
}
