package integration

import (
	"slices"
	"testing"

	"cellblock/kernel"
	"cellblock/kernel/artefact"
)

// TestCasesH9: what a cell leaves in its session directory belongs to that cell alone.
func TestCasesH9(t *testing.T) {
	for _, name := range []string{"off", "report", "shadow", "enforce"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := mode(name)
			if name == "shadow" {
				require(t, needOverlay)
				in = shadowIn(newDirIn(t, "/var/tmp"))
			}
			s := open(t, in, func(o *kernel.Options) { o.Artefacts = true })
			for _, cell := range []struct {
				code string
				want []artefact.File
			}{
				{`open("out.png", "wb").write(bytes.fromhex("89504e470d0a1a0a"));`, []artefact.File{{Path: "out.png", Bytes: 8, Change: artefact.Created}}},
				{`"no plot"`, nil},
				{`open("out.png", "wb").write(bytes.fromhex("89504e470d0a1a0b")); os.utime("out.png", (1, 1));`, []artefact.File{{Path: "out.png", Bytes: 8, Change: artefact.Changed}}},
				{`os.makedirs("in/a"); open("in/a/b", "w").write("x"); os.symlink("/etc", "etc"); 1 / 0`, []artefact.File{{Path: "in/a/b", Bytes: 1, Change: artefact.Created}}},
				{`os.stat("out.png");`, nil},
				{`subprocess.run(["sh", "-c", "echo child > child"]);`, []artefact.File{{Path: "child", Bytes: 6, Change: artefact.Created}}},
			} {
				if r := s.run(cell.code); !slices.Equal(r.Details.Artefacts, cell.want) {
					t.Errorf("%s: %v, not %v; %v", cell.code, r.Details.Artefacts, cell.want, r.Details.Notes)
				}
			}
			// Unasked nothing is looked for.
			if r := open(t, in).run(`open("out.png", "w").write("x")`); r.Details.Artefacts != nil {
				t.Errorf("%v", r.Details.Artefacts)
			}
		})
	}
}
