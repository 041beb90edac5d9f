package integration

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cellblock/integration/need"
)

// example is one command line of a document, with the output that the document
// shows below it.
type example struct {
	line  string
	shown string
	shows bool
}

// examples reads the indented blocks of a Markdown text. In a block with a line
// that begins with "$ ", those lines are commands and what follows each is its
// output; lines before the first of them, and of any other block, are commands.
func examples(text string) []example {
	var found []example
	var block []string
	end := func() {
		session := false
		for _, line := range block {
			command, prompted := strings.CutPrefix(line, "$ ")
			switch {
			case prompted:
				session = true
				found = append(found, example{line: command, shows: true})
			case session:
				found[len(found)-1].shown += line + "\n"
			default:
				found = append(found, example{line: line})
			}
		}
		block = nil
	}
	for _, line := range append(strings.Split(text, "\n"), "end") {
		if code, in := strings.CutPrefix(line, "    "); in {
			block = append(block, code)
		} else {
			end()
		}
	}
	return found
}

// shell is a directory in which a reader types the lines of a document.
type shell struct {
	t            testing.TB
	home         string
	cwd          string // ~/project, since a home is no session directory
	placeholders *strings.Replacer
}

// newShell has the command as bin/cellblock and on PATH, a home with the project
// and the files that the documents speak of.
func newShell(t testing.TB) *shell {
	t.Helper()
	sh := &shell{t: t, home: newDirIn(t, "/var/tmp")}
	sh.cwd = filepath.Join(sh.home, "project")
	for _, dir := range []string{"man", "project/bin"} {
		if err := os.MkdirAll(filepath.Join(sh.home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(binary(t), filepath.Join(sh.cwd, "bin", "cellblock")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"analysis.py", "job.py"} {
		write(t, filepath.Join(sh.cwd, name), "x = 1\n# %%\nx + 1\n")
	}
	for _, name := range []string{"team.yaml", "team_test.yaml"} {
		write(t, filepath.Join(sh.cwd, "cases", name), readFile(t, filepath.Join("testdata", "trial", name)))
	}
	for _, name := range []string{"orders.py", "test_orders.py", "orders.yaml"} {
		write(t, filepath.Join(sh.cwd, "extensions", name), readFile(t, filepath.Join("testdata", "extension", name)))
	}
	regoProgram(t)
	serveProgram(t)
	for _, name := range []string{"tools.yaml", "tools.rego", "tools_test.rego", "tools_test.yaml"} {
		write(t, filepath.Join(sh.cwd, "tools", name), readFile(t, filepath.Join("testdata", "rego", name)))
	}
	sh.placeholders = strings.NewReplacer("DIR", newDirIn(t, "/var/tmp"), "REPORTS", newDirIn(t, "/var/tmp"), "LOG", filepath.Join(sh.home, "log"), "/usr/local/share/man/man1", filepath.Join(sh.home, "man"))
	return sh
}

// run types one line and returns both streams in one and the exit code.
func (sh *shell) run(line string) (string, int) {
	sh.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", sh.placeholders.Replace(line))
	cmd.Dir = sh.cwd
	cmd.Env = []string{"HOME=" + sh.home, "PATH=" + filepath.Join(sh.cwd, "bin") + ":/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		sh.t.Fatalf("%s: %v\n%s", line, err, out.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// rootFile is a file of the repository's root.
func rootFile(t testing.TB, name string) string {
	t.Helper()
	return readFile(t, filepath.Join("..", name))
}

// TestReadmeOpening: a reader learns in the first lines what it is, and the two
// commands that matter.
func TestReadmeOpening(t *testing.T) {
	text := rootFile(t, "README.md")
	first := examples(text)
	if len(first) < 2 || !strings.HasPrefix(first[0].line, "make run ") || !strings.HasPrefix(first[1].line, "make test ") {
		t.Errorf("the first command lines are not make run and make test: %v", first)
	}
	intro, _, _ := strings.Cut(text, "    make")
	if n := strings.Count(strings.TrimSpace(intro), "\n"); n > 7 {
		t.Errorf("%d lines stand before the first command; five say what it is", n)
	}
}

// TestReadmeExamples runs every command line of README and compares what README
// shows of its output.
func TestReadmeExamples(t *testing.T) {
	rules := rootFile(t, "Makefile")
	sh := newShell(t)
	commands := 0
	for _, e := range examples(rootFile(t, "README.md")) {
		if rest, isMake := strings.CutPrefix(e.line, "make "); isMake {
			target := strings.Fields(rest)[0]
			if !strings.Contains(rules, "\n"+target+":") {
				t.Errorf("%s: the Makefile has no such target", e.line)
			}
			continue
		}
		if why := probeOverlay(); why != "" && strings.Contains(e.line, "shadow") && !need.Required(needOverlay) {
			t.Logf("not run, %s: %s", why, e.line)
			continue
		}
		commands++
		out, code := sh.run(e.line)
		switch {
		case e.shows && out != sh.placeholders.Replace(e.shown):
			t.Errorf("%s\nprints:\n%s\nREADME shows:\n%s", e.line, out, e.shown)
		case !e.shows && code != 0:
			t.Errorf("%s\nexit code %d\n%s", e.line, code, out)
		}
	}
	if commands < 5 {
		t.Errorf("README has %d examples of the command; the parser does not see them", commands)
	}
}

// TestReadmeExitCodes: what README, the help text and the command itself say of
// exit codes is one thing.
func TestReadmeExitCodes(t *testing.T) {
	lines := map[string]string{
		"0 ok":                          `cellblock run -c 1`,
		"1 a cell raised":               `cellblock run -c 1/0`,
		"2 usage":                       `cellblock run --mode sometimes -c 1`,
		"3 timeout":                     `cellblock run --timeout 300ms -c 'import time; time.sleep(60)'`,
		"4 the worker died":             `cellblock run -c 'import os; os._exit(3)'`,
		"5 the jail could not be built": `cellblock run --python /nowhere/python3 -c 1`,
	}
	text := strings.Join(strings.Fields(rootFile(t, "README.md")), " ")
	_, list, found := strings.Cut(text, "Exit codes: ")
	list, _, ended := strings.Cut(list, ".")
	if !found || !ended {
		t.Fatal("README lists no exit codes")
	}
	sh := newShell(t)
	told := strings.Split(list, ", ")
	if len(told) != len(lines) {
		t.Errorf("README lists %q", told)
	}
	for _, what := range told {
		line, known := lines[what]
		if !known {
			t.Errorf("README says %q, for which this test has no command line", what)
			continue
		}
		if out, code := sh.run(line); code != int(what[0]-'0') {
			t.Errorf("%s: exit code %d, README says %q\n%s", line, code, what, out)
		}
	}
}

// TestHelpExamples runs the examples of every command's help text.
func TestHelpExamples(t *testing.T) {
	sh := newShell(t)
	help, _ := sh.run("cellblock --help")
	_, list, _ := strings.Cut(help, "Available Commands:")
	list, _, _ = strings.Cut(list, "\n\n")
	names := regexp.MustCompile(`(?m)^  (\w+) `).FindAllStringSubmatch(list, -1)
	ran := 0
	for _, name := range names {
		text, code := sh.run("cellblock " + name[1] + " --help")
		if code != 0 {
			t.Errorf("%s --help: exit code %d", name[1], code)
		}
		_, lines, has := strings.Cut(text, "Examples:\n")
		if !has || name[1] == "completion" {
			continue
		}
		lines, _, _ = strings.Cut(lines, "\n\n")
		for line := range strings.SplitSeq(lines, "\n") {
			if strings.Contains(line, "| man ") {
				if _, err := exec.LookPath("man"); err != nil {
					t.Logf("not run, there is no man here: %s", line)
					continue
				}
			}
			ran++
			if out, code := sh.run(strings.TrimSpace(line)); code != 0 {
				t.Errorf("help of %s: %s\nexit code %d\n%s", name[1], line, code, out)
			}
		}
	}
	if ran < 5 {
		t.Errorf("%d examples in the help of %d commands; the parser does not see them", ran, len(names))
	}
}
