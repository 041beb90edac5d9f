package integration

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"cellblock/jail/plan"
	"cellblock/kernel"
)

// TestProgramsByTheirOldNames: where /usr alone is listed, programs are reached by the
// links of a usr-merged system, such as /bin/sh, as on the host and in mode report.
func TestProgramsByTheirOldNames(t *testing.T) {
	require(t, needUserns, needUsrmerge)
	const usr = "version: 1\nname: listed\nfs:\n  defaults:\n    read: {effect: deny, reason: r}\n  rules:\n    - {path: \"${session}\", access: [write], effect: allow, reason: r}\n    - {path: /usr, access: [read], effect: allow, reason: r}\n"
	for _, m := range everyMode {
		t.Run(m, func(t *testing.T) {
			s := open(t, inMode(t, m), document(t, usr))
			s.shows(`subprocess.run(["/bin/sh", "-c", "echo $((6 * 7))"], capture_output=True, text=True).stdout`, `'42\n'`)
			for _, top := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
				if target, err := os.Readlink(top); err == nil {
					s.shows(fmt.Sprintf(`os.readlink(%q)`, top), "'"+target+"'")
				}
			}
		})
	}
}

// TestPlanShowsTopLinks: the plan says which links there are, and why.
func TestPlanShowsTopLinks(t *testing.T) {
	require(t, needUsrmerge)
	opts := kernel.Options{PythonBin: pythonBin(), SessionDir: newDirIn(t, "/var/tmp"), Mode: "enforce"}
	document(t, "version: 1\nname: listed\nfs:\n  defaults:\n    read: {effect: deny, reason: r}\n  rules:\n    - {path: \"${session}\", access: [write], effect: allow, reason: r}\n    - {path: /usr/bin/env, access: [read], effect: allow, reason: r}\n")(&opts)
	p, err := kernel.Plan(opts)
	if err != nil {
		t.Fatal(err)
	}
	shown := slices.ContainsFunc(p.Steps, func(s plan.Step) bool {
		return s.Op == plan.OpSymlink && s.Path == "/bin" && s.Source == "usr/bin"
	})
	if !shown {
		t.Errorf("no step makes /bin")
	}
}
