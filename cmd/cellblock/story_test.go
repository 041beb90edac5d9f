package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"cellblock/jail"
)

// TestMain lets the test binary be the command: what the stories run is main.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"cellblock": main})
}

// TestStories runs the stories of testdata, one file each: what a person types,
// what is answered, and the exit code.
func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		WorkdirRoot:         workdirs(t),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			// The distribution's interpreter, not the one of a version chooser.
			bin, _, _ := strings.Cut(e.Getenv("PATH"), string(filepath.ListSeparator))
			e.Setenv("PATH", bin+":/usr/local/bin:/usr/bin:/bin")
			e.Cd = filepath.Join(e.WorkDir, "project")
			for _, dir := range []string{e.Cd, e.Getenv("HOME")} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "json": jsonValue, "roff": roff},
		Condition: func(name string) (bool, error) {
			switch name {
			case "root":
				return os.Geteuid() == 0, nil
			case "cgroup": // limits that all processes of a jail share
				return jail.Probe().Get(jail.CgroupMemory).Yes(), nil
			}
			return false, errors.New("no such condition")
		},
	})
}

// workdirs is where the stories' directories are made: a worker has another id
// than the tests, and has a /tmp of its own.
func workdirs(t *testing.T) string {
	dir, err := os.MkdirTemp("/var/tmp", "story-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// exits runs a command and wants an exit code: exits 2 cellblock run --nope.
// What it printed is there for stdout and stderr.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	got := 0
	if exit != nil {
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// jsonValue wants a value in a line of JSON of the last output: json 1
// details.value 42. The path names keys and indices; "keys" at its end stands for
// an object's names in order, and "length" for a list's length. A value that is
// no string is compared as JSON; a line feed is written \n.
func jsonValue(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json LINE PATH VALUE")
	}
	number, err := strconv.Atoi(args[0])
	ts.Check(err)
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile("stdout"), "\n"), "\n")
	if number > len(lines) {
		ts.Fatalf("the output has %d lines", len(lines))
	}
	var value any
	ts.Check(json.Unmarshal([]byte(lines[number-1]), &value))
	got := pick(value, strings.Split(args[1], "."))
	if (got == args[2]) == neg {
		ts.Fatalf("%s is %s", args[1], got)
	}
}

// roff wants the last output to be a manual page (man(7)): the title line first,
// no request that man does not know, and the named sections.
func roff(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: roff TITLE SECTION...")
	}
	page := ts.ReadFile("stdout")
	var title string
	var sections []string
	for line := range strings.Lines(page) {
		request, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		switch request {
		case ".TH":
			title = rest
		case ".SH":
			if title == "" {
				ts.Fatalf("a section stands before the title line")
			}
			sections = append(sections, rest)
		case ".nh", ".PP", ".EX", ".EE", ".RS", ".RE", ".TP", ".IP", ".SS", ".br", ".nf", ".fi":
		default:
			if strings.HasPrefix(request, ".") || strings.HasPrefix(request, "'") {
				ts.Fatalf("%s: man(7) has no such request", request)
			}
		}
	}
	if !strings.Contains(title, args[0]) {
		ts.Fatalf("the title line is %q", title)
	}
	for _, want := range args[1:] {
		if !slices.Contains(sections, want) {
			ts.Fatalf("no section %s among %q", want, sections)
		}
	}
}

// pick follows a path into a JSON value and prints what is there.
func pick(value any, path []string) string {
	for _, name := range path {
		switch v := value.(type) {
		case map[string]any:
			if inner, ok := v[name]; ok || name != "keys" {
				value = inner
				continue
			}
			var names []string
			for key := range v {
				names = append(names, key)
			}
			slices.Sort(names)
			value = strings.Join(names, " ")
		case []any:
			if name == "length" {
				value = len(v)
			} else if i, err := strconv.Atoi(name); err == nil && i < len(v) {
				value = v[i]
			} else {
				return "nothing"
			}
		default:
			return "nothing"
		}
	}
	if text, ok := value.(string); ok {
		return strings.ReplaceAll(text, "\n", `\n`)
	}
	text, _ := json.Marshal(value)
	return string(text)
}
