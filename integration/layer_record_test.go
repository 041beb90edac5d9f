package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cellblock/kernel"
	"cellblock/kernel/shadow"
	"cellblock/policy/audit"
)

// layerRecords are the records of the commands about layers, of all together, in their
// order, each as "op decision target", with the session that they must name.
func layerRecords(t *testing.T, state, session string) (lines []string, reasons map[string]string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(state, "cellblock/audit/*-shadow.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	reasons = map[string]string{}
	for _, log := range logs {
		for _, r := range readLog(t, log) { // verifies it
			if r.Source != audit.SourceHost || r.Session != session {
				t.Errorf("%+v", r)
			}
			line := strings.TrimSpace(r.Op + " " + r.Decision + " " + r.Target)
			lines, reasons[line] = append(lines, line), r.Reason
		}
	}
	return lines, reasons
}

// TestCommandsOnLayersAreRecorded: what a commit carries over and what it refuses, and
// what is dropped, stands in records that verify, and that no command takes for those
// of the last session.
func TestCommandsOnLayersAreRecorded(t *testing.T) {
	require(t, needOverlay)
	dir := newDirIn(t, "/var/tmp")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	cli, state := shadowed(t, fmt.Sprintf("import os\nD = %q\nfor n in 'abc': open(D + '/' + n, 'w').write(n)\nos.mkfifo(D + '/pipe')", dir))
	session := layerOf(t, filepath.Join(state, "cellblock"), "last").Session
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"commit", "last", "--dry-run", "--skip-conflicts"}, 1, ""},
		{[]string{"commit", "last", "--audit", "none", dir + "/c"}, 0, ""},
		{[]string{"commit", "last"}, 1, "shadow.commit|shadow.carry denied D/pipe|shadow.end"},
		{[]string{"commit", "last", "--skip-conflicts", dir + "/a", dir + "/pipe"}, 1, "shadow.commit|shadow.carry allowed D/a|shadow.carry denied D/pipe|shadow.end"},
		{[]string{"discard", "last"}, 0, "shadow.discard|shadow.drop allowed D/b|shadow.drop allowed D/pipe|shadow.end"},
	} {
		before, _ := layerRecords(t, state, session)
		if out := cli(append([]string{"shadow"}, c.args...)...); out.code != c.code {
			t.Fatalf("%v: exit code %d\n%s", c.args, out.code, out.stderr)
		}
		after, reasons := layerRecords(t, state, session)
		if got := strings.ReplaceAll(strings.Join(after[len(before):], "|"), dir, "D"); got != c.want {
			t.Errorf("%v: recorded %s, want %s", c.args, got, c.want)
		}
		if why := reasons["shadow.carry denied "+dir+"/pipe"]; len(c.want) > 0 && !strings.Contains(why, "a fifo is not carried over") {
			t.Errorf("%v: the refusal has the reason %q", c.args, why)
		}
	}
	if out := cli("audit", "tail"); strings.Contains(out.stdout, "shadow.") || !strings.Contains(out.stdout, "cell.start") {
		t.Errorf("the last session's record is\n%s", out.stdout)
	}
}

// TestWhatCannotBeRecordedIsNotCarriedOver: with a log that takes no more, in the middle
// of a commit, and before a layer is dropped.
func TestWhatCannotBeRecordedIsNotCarriedOver(t *testing.T) {
	require(t, needOverlay)
	dir := newDirIn(t, "/var/tmp")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	cli, state := shadowed(t, fmt.Sprintf("D = %q\nfor n in range(50): open(f'{D}/{n:02}', 'w').write('x')", dir))
	layer := layerOf(t, filepath.Join(state, "cellblock"), "last")
	full := func() *audit.Log {
		log, err := audit.Open(filepath.Join(newDirIn(t, "/var/tmp"), "audit", "a.jsonl"), audit.Options{MaxBytes: 4000})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { log.Close() })
		return log
	}
	log := full()
	res, err := kernel.CommitLayer(layer, shadow.CommitOptions{}, log)
	made, _ := filepath.Glob(dir + "/*")
	if !errors.Is(err, audit.ErrLimit) || len(made) == 0 || len(made) != len(res.Done) || len(made) == 50 {
		t.Errorf("%v: %d on the host, %d told of", err, len(made), len(res.Done))
	}
	recorded := 0
	for _, r := range readLog(t, log.Path()) {
		if r.Op == audit.OpShadowCarry {
			recorded++
		}
	}
	if recorded != len(made) {
		t.Errorf("%d are recorded, %d on the host", recorded, len(made))
	}
	if err := kernel.DiscardLayer(layer, full()); !errors.Is(err, audit.ErrLimit) {
		t.Errorf("discard: %v", err)
	}
	if out := cli("shadow", "diff", "last"); out.code != 1 || strings.Count(out.stdout, "created") != 50-len(made) {
		t.Errorf("the layer has\n%s", out.stdout)
	}
	bad := filepath.Join(newDirIn(t, "/var/tmp"), "log")
	if err := os.Mkdir(bad, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(bad, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"commit", "last"}, {"discard", "last"}} {
		if out := cli(append([]string{"shadow"}, append(args, "--audit", bad+"/a.jsonl")...)...); out.code == 0 {
			t.Errorf("%v without its record: %s", args, out.stdout)
		}
	}
	if now, _ := filepath.Glob(dir + "/*"); len(now) != len(made) {
		t.Errorf("%d on the host, %d before", len(now), len(made))
	}
}
