package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cellblock/policy"
	"cellblock/policy/audit"
)

var (
	needPip    = register("pip", pythonImports("pip"))
	needPytest = register("pytest", pythonImports("pytest"))
)

// recordedProgram is a program that nobody here wrote, and what it works on.
type recordedProgram struct {
	name  string
	needs []string
	// prepare makes what the program reads and returns its command line; it writes
	// beneath out, which is there and empty.
	prepare func(t *testing.T, place, out string) []string
}

var recordedPrograms = []recordedProgram{
	{"git clone", []string{needGit}, func(t *testing.T, place, out string) []string {
		source := filepath.Join(place, "source")
		write(t, source+"/a", "a\n")
		write(t, source+"/d/b", "b\n")
		if err := os.Symlink("../a", source+"/d/link"); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"init -q", "add -A", "-c user.name=n -c user.email=n@example.com commit -q -m first"} {
			cmd := exec.Command("git", strings.Fields(line)...)
			cmd.Dir, cmd.Env = source, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git %s: %v\n%s", line, err, text)
			}
		}
		// The clone's reader is another user than the source's owner.
		return []string{"git", "-c", "safe.directory=*", "clone", "-q", "--no-local", "file://" + source, out + "/clone"}
	}},
	{"pip install", []string{needPip}, func(t *testing.T, place, out string) []string {
		wheel := filepath.Join(place, "sample-1.0-py3-none-any.whl")
		hostPython(t, place, fmt.Sprintf(`
import zipfile
with zipfile.ZipFile(%q, "w") as z:
    z.writestr("sample/__init__.py", "one = 1\n")
    z.writestr("sample/data.txt", "x")
    z.writestr("sample-1.0.data/scripts/sample-run", "#!python\nprint(1)\n")
    z.writestr("sample-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
    z.writestr("sample-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("sample-1.0.dist-info/RECORD", "sample/__init__.py,,\nsample/data.txt,,\nsample-1.0.data/scripts/sample-run,,\nsample-1.0.dist-info/METADATA,,\nsample-1.0.dist-info/WHEEL,,\nsample-1.0.dist-info/RECORD,,\n")`, wheel))
		return []string{pythonBin(), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--target", out + "/target", wheel}
	}},
	{"pytest", []string{needPytest, needMatplotlib}, func(_ *testing.T, _, out string) []string {
		return []string{pythonBin(), "-B", "-m", "pytest", "-q", "-p", "no:warnings", "--rootdir", out, "-o", "cache_dir=" + out + "/cache", "--basetemp", out + "/base",
			"--junitxml", out + "/report.xml", "--pyargs", "matplotlib.tests.test_afm"}
	}},
	{"unittest", []string{needTestsuite}, func(_ *testing.T, _, out string) []string {
		return []string{pythonWith("test.test_filecmp"), "-B", "-m", "test", "-q", "--tempdir", out, "test_filecmp"}
	}},
}

// cellOf runs a command line as a cell does.
func cellOf(args []string, more string) string {
	list, _ := json.Marshal(args)
	return fmt.Sprintf("import subprocess\ndone = subprocess.run(%s, capture_output=True, text=True)\nassert done.returncode == 0, done.stdout + done.stderr\n%s", list, more)
}

// TestASuggestedPolicyIsWhatARunNeeds: recorded in mode report under a policy that
// does not allow it, a program runs clean under enforce with what is suggested, and
// one that does one thing more is denied exactly that.
func TestASuggestedPolicyIsWhatARunNeeds(t *testing.T) {
	require(t, needLandlock)
	for _, p := range recordedPrograms {
		t.Run(p.name, func(t *testing.T) {
			require(t, p.needs...)
			place, dir := newDirIn(t, "/var/tmp"), newDirIn(t, "/var/tmp")
			out, beside := filepath.Join(place, "out"), filepath.Join(place, "beside")
			for _, d := range []string{out, beside} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(place, 0o755); err != nil {
				t.Fatal(err)
			}
			args := p.prepare(t, place, out)
			logs := newDirIn(t, "/var/tmp")
			run := func(name, code string, flags ...string) (outcome, []string) {
				file := filepath.Join(logs, name+".jsonl")
				o := command(t).run(slices.Concat([]string{"run", "--session", dir, "--python", pythonBin(), "--audit", file}, flags, []string{"-c", code})...)
				var denied []string
				for _, r := range readLog(t, file) {
					if r.Denial() {
						denied = append(denied, r.Op+" "+r.Target)
					}
				}
				return o, denied
			}
			first, wouldBe := run("report", cellOf(args, ""))
			if first.code != 0 || len(wouldBe) == 0 {
				t.Fatalf("%d operations outside of the policy\n%+v", len(wouldBe), first)
			}

			recorded := filepath.Join(logs, "report.jsonl")
			made := command(t).run("policy", "suggest", "--python", pythonBin(), recorded)
			if made.code != 0 {
				t.Fatalf("%+v", made)
			}
			if again := command(t).run("policy", "suggest", "--python", pythonBin(), recorded); again.stdout != made.stdout {
				t.Error("a second suggestion from the same record is another one")
			}
			file := filepath.Join(logs, "suggested.yaml")
			write(t, file, made.stdout)
			// What this host cannot keep of the base is no matter of the suggestion's.
			base := command(t).run("policy", "check", "--session", dir, "--python", pythonBin(), "default")
			if checked := command(t).run("policy", "check", "--session", dir, "--python", pythonBin(), file); checked.code != base.code || strings.Contains(checked.stdout, "rule suggested.") {
				t.Errorf("policy check: %+v", checked)
			}
			if replayed := command(t).run("policy", "replay", "--python", pythonBin(), file, recorded); replayed.code != 0 {
				t.Errorf("replay: %+v", replayed)
			}
			minimal(t, file, recorded)

			empty(t, out)
			if o, denied := run("enforce", cellOf(args, ""), "--mode", "enforce", "--policy", file); o.code != 0 || len(denied) != 0 {
				t.Errorf("under enforce with what was suggested: %v\n%+v\n%s", denied, o, made.stdout)
			}
			// The control: without the suggestion the same program is refused.
			empty(t, out)
			if o, denied := run("control", cellOf(args, ""), "--mode", "enforce"); len(denied) == 0 {
				t.Errorf("the policy it was recorded under lets it through: %v %+v", denied, o)
			}
			empty(t, out)
			more := fmt.Sprintf("try: open(%q, 'w')\nexcept OSError as e: print('refused', e.errno)", beside+"/x")
			o, denied := run("more", cellOf(args, more), "--mode", "enforce", "--policy", file)
			if o.code != 0 || !strings.Contains(o.stdout, "refused") || !slices.Equal(denied, []string{"write " + beside + "/x"}) {
				t.Errorf("one thing more: %v\n%+v", denied, o)
			}
		})
	}
}

// minimal drops each suggested rule, and each access of it, in turn: the record must
// then not be clean any more.
func minimal(t *testing.T, file, recorded string) {
	t.Helper()
	text := readFile(t, file)
	doc, err := policy.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range doc.FS.Rules {
		if !strings.HasPrefix(r.ID, "suggested.") {
			continue
		}
		for _, part := range []policy.Access{policy.AccessRead, policy.AccessExec, policy.AccessModify, policy.AccessCreate, policy.AccessRemove} {
			if !r.Access.Has(part) {
				continue
			}
			less := doc
			less.FS.Rules = slices.Clone(doc.FS.Rules)
			if less.FS.Rules[i].Access &^= part; less.FS.Rules[i].Access == 0 {
				less.FS.Rules = slices.Delete(less.FS.Rules, i, i+1)
			}
			write(t, file+".less", string(less.YAML(nil)))
			if o := command(t).run("policy", "replay", file+".less", recorded); o.code != 1 {
				t.Errorf("rule %s needs no %s: %+v", r.Path, part, o)
			}
		}
	}
}

// empty removes what is in a directory.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatIsNotSuggested: a record of a program that goes for secrets, for the host
// itself and for other machines opens none of these.
func TestWhatIsNotSuggested(t *testing.T) {
	place, dir := newDirIn(t, "/var/tmp"), newDirIn(t, "/var/tmp")
	bare := filepath.Join(place, "bare.yaml")
	write(t, bare, "version: 1\nname: bare\nfs:\n  rules:\n    - {id: session, path: \"${session}\", access: [write], effect: allow, reason: r}\n")
	home := filepath.Join(place, "home")
	for _, d := range []string{home + "/.ssh", home + "/.config", home + "/work"} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{place, home, home + "/.ssh", home + "/.config", home + "/work"} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	recorded := filepath.Join(newDirIn(t, "/var/tmp"), "a.jsonl")
	const tools = `
import os, socket
def attempt(f, *args):
    try: f(*args)
    except OSError: pass
`
	code := tools + fmt.Sprintf(`
H = %q
attempt(open, H + "/.ssh/authorized_keys", "w")
attempt(open, H + "/new", "w")
attempt(open, H + "/.config/new", "w")
attempt(open, H + "/work/.git\nx", "w")
s = socket.socket(); s.settimeout(0.1)
attempt(s.connect, ("192.0.2.1", 9))
`, home)
	env := append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(place, "state"))
	o := command(t).env(env...).run("run", "--session", dir, "--python", pythonBin(), "--policy", bare, "--audit", recorded, "-c", code)
	if o.code != 0 {
		t.Fatalf("%+v", o)
	}
	// Under enforce, so that nothing is made there.
	refused := filepath.Join(filepath.Dir(recorded), "b.jsonl")
	o = command(t).env(env...).run("run", "--mode", "enforce", "--session", dir, "--python", pythonBin(), "--policy", bare, "--audit", refused, "-c", tools+`
for place in "/", "/etc/", "/run/":
    attempt(open, place + "cellblock-no-such", "w")
`)
	if o.code != 0 {
		t.Fatalf("%+v", o)
	}
	for _, base := range []string{"default", bare} {
		made := command(t).env(env...).run("policy", "suggest", "--json", "--base", base, recorded, refused)
		var got struct {
			Rules []struct {
				Path     string
				Evidence []audit.Operation
			}
			NotSuggested []struct {
				Operation audit.Operation
				Why       string
			}
		}
		if err := json.Unmarshal([]byte(made.stdout), &got); err != nil || made.code != 1 {
			t.Fatalf("%v %+v", err, made)
		}
		why := map[string]string{}
		for _, l := range got.NotSuggested {
			why[l.Operation.Target] = l.Why
		}
		opened := []string{}
		for _, r := range got.Rules {
			opened = append(opened, strings.TrimPrefix(r.Path, home))
		}
		// In the built-in default a denial wins, and beneath ~/.config it leaves room.
		if want := map[string][]string{"default": {"/.config", "/work"}, bare: {"/work"}}[base]; !slices.Equal(opened, want) {
			t.Errorf("%s: suggested are %v, want %v", base, opened, want)
		}
		for target, part := range map[string]string{
			home + "/.ssh/authorized_keys": "ssh", home + "/new": "the whole of " + home, home + "/.config/new": "gcloud",
			"/cellblock-no-such": "the whole of /:", "/etc/cellblock-no-such": "the whole of /etc", "/run/cellblock-no-such": "/run", "192.0.2.1:9": "net.allow",
		} {
			if base == "default" && target == home+"/.config/new" {
				continue
			}
			if !strings.Contains(why[target], part) {
				t.Errorf("%s: %s is left out because %q, want %q\n%v", base, target, why[target], part, why)
			}
		}
	}
}
