package parity

import (
	"strings"
	"testing"

	"cellblock/integration/need"
	"cellblock/jail"
	"cellblock/policy"
)

// TestHiddenThemselves: a file and a directory that a rule hides are refused, not
// shown as empty, and told of as report tells of reading them.
func TestHiddenThemselves(t *testing.T) {
	need.Features(t, jail.UserNamespace, jail.Landlock, jail.SeccompNotify, jail.Overlay)
	for _, mode := range []policy.Mode{policy.Off, policy.Report, policy.Shadow, policy.Enforce} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := open(t, mode, rules, nil)
			for code, what := range map[string]string{
				`open(B + "/key").read()`:                "key",
				`open("link").read()`:                    "key",
				`os.listdir(B + "/secret")`:              "secret",
				`os.listdir("/proc/self/cwd/../secret")`: "secret",
				`subprocess.run(["/bin/cat", B + "/key"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)`: "key",
			} {
				r := s.run("import os, subprocess\nB = " + quote(s.base) + `
if not os.path.lexists("link"): os.symlink(B + "/key", "link")
try:
    ` + code + `
    done = "done"
except OSError as problem:
    done = problem.strerror
except subprocess.CalledProcessError:
    done = "Permission denied"
print(done)`)
				got, told := strings.TrimSpace(r.Details.Stdout), []string{}
				for _, v := range r.Details.Policy.Violations {
					told = append(told, v.Op+" "+strings.TrimPrefix(v.Path, s.base+"/"))
				}
				wantTold := "read " + what
				if mode == policy.Off {
					wantTold = ""
				}
				wantGot := map[policy.Mode]string{policy.Enforce: "Permission denied"}[mode]
				if wantGot == "" {
					wantGot = "done"
				}
				if got != wantGot || strings.Join(told, ", ") != wantTold {
					t.Errorf("%s: ends in %q and is told as %q", code, got, told)
				}
			}
		})
	}
}
