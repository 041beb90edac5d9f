package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cellblock/kernel/shadow"
)

// shadowed runs a cell in mode shadow with the command, in a state of the test's
// own, and returns how further commands are run, and where that state is.
func shadowed(t *testing.T, code string) (func(args ...string) outcome, string) {
	t.Helper()
	state, home := newDirIn(t, "/var/tmp"), newDirIn(t, "/var/tmp")
	cli := func(args ...string) outcome { return command(t).env(stateEnv(state)...).run(args...) }
	out := cli("run", "--mode", "shadow", "--session", home, "--python", pythonBin(), "-c", code)
	if out.code != 0 {
		t.Fatalf("exit code %d: %s", out.code, out.stderr)
	}
	return cli, state
}

// TestShadowCommitCarriesALayerOver: from a session to the host, by the commands.
// A FIFO is in the way of the whole, and of nothing once conflicts are left out.
func TestShadowCommitCarriesALayerOver(t *testing.T) {
	require(t, needOverlay)
	dir := victims(t)
	cli, _ := shadowed(t, fmt.Sprintf(ravage, dir))
	before := census(t, dir)
	for _, args := range [][]string{{"--dry-run", "--skip-conflicts"}, {"--dry-run"}, {}} {
		out := cli(append([]string{"shadow", "commit", "last", dir}, args...)...)
		if out.code != 1 {
			t.Errorf("%v: exit code %d\n%s", args, out.code, out.stderr)
		}
		contains(t, "standard error", out.stderr, dir+"/pipe: a fifo is not carried over")
	}
	sameCensus(t, before, census(t, dir))

	out := cli("shadow", "commit", "last", dir+"/tool", dir+"/made/below/file")
	if out.code != 0 {
		t.Fatalf("by path: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	for name, want := range map[string]string{"made/below/file": "child\n", "file": "from the host\n"} {
		if got := readFile(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	out = cli("shadow", "commit", "last", dir, "--skip-conflicts", "--json")
	if out.code != 1 {
		t.Errorf("exit code %d\n%s", out.code, out.stderr)
	}
	var told shadow.Commit
	if err := json.Unmarshal([]byte(out.stdout), &told); err != nil {
		t.Fatalf("%v: %s", err, out.stdout)
	}
	if len(told.Done) < 8 || len(told.Refused) != 1 || told.Refused[0].Path != dir+"/pipe" || told.Left != 1 || told.Removed {
		t.Errorf("%d done, refused %v, %d left", len(told.Done), told.Refused, told.Left)
	}
	state := hostPython(t, dir, `
import os
print((open("file").read(), open("made/below/file").read(), sorted(os.listdir(".")), os.listdir("fresh"), oct(os.stat("tool").st_mode),
 os.stat("tree/b").st_mtime, os.path.isdir("link"), open("tree/a/deep").read(), os.readlink("made/link"), {os.stat(n).st_uid for n in os.listdir(".") if n != "out"} == {os.getuid()}))`)
	want := `('from the host\nand the session\n', 'child\n', ['after', 'file', 'fresh', 'hard', 'link', 'made', 'new', 'out', 'tool', 'tree'], ['old1'], '0o100750', 1.0, True, 'through a link\n', '/etc/passwd', True)`
	if state != want {
		t.Errorf("the host has\n%s\nwant\n%s", state, want)
	}
	if out := cli("shadow", "discard", "last"); out.code != 0 {
		t.Errorf("discard: %s", out.stderr)
	}
	if out := cli("shadow", "commit", "last"); out.code != 2 {
		t.Errorf("without a layer: exit code %d, %s", out.code, out.stderr)
	}
}

// TestShadowCommitThatIsKilled: commands that are killed in the middle of a commit,
// one after the other, lose nothing and leave nothing.
func TestShadowCommitThatIsKilled(t *testing.T) {
	require(t, needOverlay)
	dir := newDirIn(t, "/var/tmp")
	for i := range 150 {
		write(t, fmt.Sprintf("%s/old/%d/file", dir, i), strings.Repeat("old ", 1000))
		write(t, fmt.Sprintf("%s/gone/%d", dir, i), "gone")
	}
	cli, state := shadowed(t, fmt.Sprintf(`
import os, shutil
os.chdir(%q)
for i in range(150):
    open(f"old/{i}/file", "w").write("new " * 5000)
    os.makedirs(f"made/{i}")
    open(f"made/{i}/file", "w").write("made")
shutil.rmtree("gone")`, dir))
	kills := 0
	for wait := time.Millisecond; ; wait += wait / 3 {
		cmd := exec.Command(binary(t), "shadow", "commit", "last")
		cmd.Env = stateEnv(state)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(wait)
		_ = cmd.Process.Signal(syscall.SIGKILL)
		err := cmd.Wait()
		if err == nil {
			break
		}
		if cmd.ProcessState.Exited() {
			// The last one was killed when all was done.
			if out := cli("shadow", "list"); out.stdout != "" {
				t.Fatalf("after %d kills: %v, %s", kills, err, out.stdout)
			}
			break
		}
		kills++
	}
	t.Logf("%d kills", kills)
	for i := range 150 {
		if readFile(t, fmt.Sprintf("%s/old/%d/file", dir, i)) != strings.Repeat("new ", 5000) || readFile(t, fmt.Sprintf("%s/made/%d/file", dir, i)) != "made" {
			t.Errorf("%d is not as the session left it", i)
		}
	}
	left, err := filepath.Glob(dir + "/*")
	if err != nil || len(left) != 2 {
		t.Errorf("the directory has %v", left)
	}
	if out := cli("shadow", "list"); out.stdout != "" {
		t.Errorf("the layer is still there: %s", out.stdout)
	}
	if _, err := os.Stat(dir + "/gone"); !os.IsNotExist(err) {
		t.Errorf("what was removed is there: %v", err)
	}
}
