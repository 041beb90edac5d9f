package integration

import (
	"os"
	"strings"
	"testing"
)

// TestPrelude: what is bound at the start, and preflight.
func TestPrelude(t *testing.T) {
	t.Run("names are bound without an import", func(t *testing.T) {
		t.Parallel()
		open(t).shows(`(json.dumps([1]), re.sub("a", "b", "a"), os.sep, sys.byteorder in ("little", "big"), subprocess.run(["true"]).returncode, Path("a").name)`,
			"('[1]', 'b', '/', True, 0, 'a')")
	})
	t.Run("preflight reads a file's history", func(t *testing.T) {
		t.Parallel()
		require(t, needGit)
		dir := newDir(t)
		repo := dir + "/repo"
		if err := os.Mkdir(repo, 0o755); err != nil {
			t.Fatal(err)
		}
		git(t, repo, "init", "-q")
		for _, n := range []string{"1", "2", "3", "4", "5"} {
			write(t, repo+"/old.txt", "version "+n+"\n")
			git(t, repo, "add", "-A")
			git(t, repo, "-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "-m", "subject "+n+"\n\nbody of "+n)
		}
		git(t, repo, "mv", "old.txt", "new.txt")
		git(t, repo, "-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "-m", "renamed\n\nwhy it was renamed")
		write(t, repo+"/new.txt", "version 6\n")
		bin := dir + "/bin"
		write(t, bin+"/bd", "#!/bin/sh\n[ \"$1\" = memories ] && echo '{\"memory-of-new\": \"mind the gap\"}'\n")
		if err := os.Chmod(bin+"/bd", 0o755); err != nil {
			t.Fatal(err)
		}
		before := git(t, repo, "status", "--porcelain")
		s := open(t, at(dir))
		r := s.ok(`records = preflight("repo", "new.txt")`)
		for _, part := range []string{"renamed", "why it was renamed", "body of 5", "new.txt"} {
			contains(t, "the digest", r.Details.Stdout, part)
		}
		lacks(t, "the digest of four commits", r.Details.Stdout, "body of 1")
		s.shows(`"why it was renamed" in str(records) and "body of 3" in str(records) and "body of 2" not in str(records)`, "True")
		s.shows(`"body of 1" in str(preflight("repo", "new.txt", n=6))`, "True")
		r = s.ok(`preflight("repo", "no-such-file.txt")`)
		contains(t, "a wrong path", strings.ToLower(r.Details.Stdout), "wrong")
		s.ok(`os.environ["PATH"] = os.path.abspath("bin") + ":" + os.environ["PATH"]`)
		contains(t, "with bd on PATH", string(s.ok(`print(preflight("repo", "new.txt"))`).raw), "memory-of-new")
		if after := git(t, repo, "status", "--porcelain"); after != before {
			t.Errorf("preflight changed the repository: %q to %q", before, after)
		}
	})
}

// skillRoot makes a root with two good skills, one that fails and two that are
// no skills.
func skillRoot(t testing.TB) string {
	t.Helper()
	root := newDir(t) + "/skills"
	write(t, root+"/alpha-skill/SKILL.md", "# alpha\n")
	write(t, root+"/alpha-skill/src/alpha/__init__.py", "from . import part\nVERSION = 1\ndef note(): _AUDIT.append({'op': 'write', 'path': '/etc/hosts'})\n")
	write(t, root+"/alpha-skill/src/alpha/part.py", "WORD = 'one'\n")
	write(t, root+"/beta/SKILL.md", "# beta\n")
	write(t, root+"/beta/src/beta_tools/__init__.py", "'''Tools of beta.'''\n")
	write(t, root+"/broken/SKILL.md", "# broken\n")
	write(t, root+"/broken/src/broken_mod/__init__.py", "raise RuntimeError('at import')\n")
	write(t, root+"/no-manual/src/no_manual/__init__.py", "")
	write(t, root+"/two/SKILL.md", "# two\n")
	write(t, root+"/two/src/one_of/__init__.py", "")
	write(t, root+"/two/src/other_of/__init__.py", "")
	return root
}

// TestSkills: skillbridge.
func TestSkills(t *testing.T) {
	t.Run("packages are bound under the package's name, a broken one is recorded", func(t *testing.T) {
		t.Parallel()
		s := open(t, skills(skillRoot(t)))
		r := s.shows("(alpha.VERSION, beta_tools.__name__, 'broken_mod' in globals(), 'no_manual' in globals(), 'one_of' in globals())",
			"(1, 'beta_tools', False, False, False)")
		contains(t, "skErrors", r.Details.SkErrors["broken_mod"], "at import")
		s.shows("sys.dont_write_bytecode", "True")
		s.shows("[p for p in sys.path if p.endswith('/src')] == sys.path[:sum(p.endswith('/src') for p in sys.path)]", "True")
	})
	t.Run("reload imports afresh, submodules too", func(t *testing.T) {
		t.Parallel()
		root := skillRoot(t)
		s := open(t, skills(root))
		s.shows("(alpha.VERSION, alpha.part.WORD)", "(1, 'one')")
		write(t, root+"/alpha-skill/src/alpha/__init__.py", "from . import part\nVERSION = 2\n")
		write(t, root+"/alpha-skill/src/alpha/part.py", "WORD = 'two'\n")
		r := s.reload()
		if !r.IsError {
			t.Errorf("one failed, so isError must be set: %s", r)
		}
		if r.Details.Reload["alpha"] != "ok" || !strings.Contains(r.Details.Reload["broken_mod"], "at import") {
			t.Errorf("details.reload_skills: %v", r.Details.Reload)
		}
		contains(t, "the reply", r.text(), "reload_skills: ")
		contains(t, "the reply", r.text(), "alpha: ok")
		s.shows("(alpha.VERSION, alpha.part.WORD)", "(2, 'two')")
	})
	t.Run("reload without skills", func(t *testing.T) {
		t.Parallel()
		r := open(t, skills()).reload()
		contains(t, "the reply", r.text(), "reload_skills: (no modules)")
		if r.IsError {
			t.Errorf("no modules is no error: %s", r)
		}
	})
	t.Run("roots are read-only in the jail, in report too", func(t *testing.T) {
		t.Parallel()
		for _, m := range []string{"enforce", "report"} {
			root := skillRoot(t)
			s := open(t, mode(m), skills(root))
			r := s.run(`open(os.path.join(os.path.dirname(alpha.__file__), "part.py"), "a").write("EVIL = 1")`)
			if !r.IsError {
				t.Errorf("mode %s: a skill was written: %s", m, r)
			}
			data, err := os.ReadFile(root + "/alpha-skill/src/alpha/part.py")
			if err != nil || strings.Contains(string(data), "EVIL") {
				t.Errorf("mode %s: the host's file changed: %v %s", m, err, data)
			}
		}
	})
	t.Run("skills are bound again after reset and see the same audit list", func(t *testing.T) {
		t.Parallel()
		s := open(t, skills(skillRoot(t)))
		s.reset()
		s.shows("(alpha.VERSION, callable(preflight), Path('a').name, isinstance(_AUDIT, list))", "(1, True, 'a', True)")
		s.shows("alpha._AUDIT is _AUDIT if hasattr(alpha, '_AUDIT') else True", "True")
	})
	t.Run("roots come from the variables, then the home directory", func(t *testing.T) {
		t.Parallel()
		home, paths, roots := newDir(t), skillRoot(t), newDir(t)+"/r"
		write(t, home+"/.pi/agent/skills/pi/SKILL.md", "x")
		write(t, home+"/.pi/agent/skills/pi/src/from_pi/__init__.py", "")
		write(t, home+"/.claude/skills/cl/SKILL.md", "x")
		write(t, home+"/.claude/skills/cl/src/from_claude/__init__.py", "")
		write(t, roots+"/ro/SKILL.md", "x")
		write(t, roots+"/ro/src/from_roots/__init__.py", "")
		dir := newDir(t)
		out := command(t).dir(dir).env("PATH="+os.Getenv("PATH"), "HOME="+home, "PI_SKILL_PATHS="+paths, "PI_SKILL_ROOTS="+roots).
			run("run", "--json", "--mode", "enforce", "--python", pythonBin(), "-c",
				"[m for m in ('alpha', 'from_roots', 'from_pi', 'from_claude') if m in globals()]")
		if r := decodeReply(t, []byte(out.line(t, 0))); r.value() != "['alpha', 'from_roots', 'from_pi', 'from_claude']" {
			t.Errorf("bound: %s", r)
		}
	})
	t.Run("doctor says why one was skipped", func(t *testing.T) {
		t.Parallel()
		out := command(t).dir(newDir(t)).env("PATH="+os.Getenv("PATH"), "HOME="+newDir(t), "PI_SKILL_PATHS="+skillRoot(t)).run("doctor")
		for _, part := range []string{"no-manual", "SKILL.md", "two"} {
			contains(t, "doctor", out.stdout, part)
		}
	})
}

// TestServiceKnowledge: the package is bound when a registry stands in the
// session directory.
func TestServiceKnowledge(t *testing.T) {
	registry := func(t *testing.T, umbrella string) string {
		dir := newDir(t)
		write(t, dir+"/.xtrm/skills/pack/"+umbrella+"/service-registry.json", "{}")
		return dir
	}
	knowledge := func(t *testing.T, dir, index string) string {
		venv := makeVenv(t)
		out := hostPythonAt(t, venv+"/bin/python3", "import site; print(site.getsitepackages()[0])")
		write(t, out+"/service_knowledge/__init__.py", "NAME = 'installed'\n")
		write(t, out+"/service_knowledge/index.py", index)
		return venv + "/bin/python3"
	}
	const index = "def build(*a, **k): return {'a': 1, 'b': 2, 'c': 3}\n"
	for _, umbrella := range []string{"service-knowledge", "service-skills"} {
		t.Run("a registry under "+umbrella+" binds it", func(t *testing.T) {
			t.Parallel()
			dir := registry(t, umbrella)
			s := open(t, at(dir), python(knowledge(t, dir, index)))
			s.shows("service_knowledge.NAME", "'installed'")
			r := s.ok("built = sk_rebuild(); built")
			contains(t, "sk_rebuild", r.value(), "'items': 3")
			contains(t, "sk_rebuild", r.value(), "'duration_ms'")
			if len(r.Details.Audit) != 1 {
				t.Errorf("sk_rebuild leaves %d audit entries, want 1: %s", len(r.Details.Audit), r)
			}
			s.reset()
			s.ok("sk_rebuild()")
		})
	}
	t.Run("without a registry nothing is bound", func(t *testing.T) {
		t.Parallel()
		dir := newDir(t)
		open(t, at(dir), python(knowledge(t, dir, index))).shows("('service_knowledge' in globals(), 'sk_rebuild' in globals())", "(False, False)")
	})
	t.Run("a package that is missing is recorded, never fatal", func(t *testing.T) {
		t.Parallel()
		r := open(t, at(registry(t, "service-knowledge"))).shows("1 + 1", "2")
		if r.Details.SkErrors["service_knowledge"] == "" {
			t.Errorf("no skErrors entry: %s", r)
		}
	})
	t.Run("a package that is broken is recorded, never fatal", func(t *testing.T) {
		t.Parallel()
		dir := registry(t, "service-knowledge")
		bin := knowledge(t, dir, index)
		site := hostPythonAt(t, bin, "import site; print(site.getsitepackages()[0])")
		write(t, site+"/service_knowledge/__init__.py", "raise RuntimeError('half installed')\n")
		r := open(t, at(dir), python(bin)).shows("1 + 1", "2")
		contains(t, "skErrors", r.Details.SkErrors["service_knowledge"], "half installed")
	})
}
