package integration

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cellblock/policy/audit"
)

// logsIn lists the records below a state directory, oldest first.
func logsIn(t testing.TB, state string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(state, "cellblock", "audit", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// readLog verifies a log and returns its records.
func readLog(t testing.TB, path string) []audit.Record {
	t.Helper()
	v, err := audit.Verify(path)
	if err != nil || !v.Clean() {
		t.Fatalf("%s: %v %+v", path, err, v)
	}
	var out []audit.Record
	for e, err := range audit.Read(strings.NewReader(readFile(t, path))) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Record)
	}
	return out
}

// stateEnv is the environment with another state directory.
func stateEnv(state string) []string {
	return append(os.Environ(), "XDG_STATE_HOME="+state)
}

// TestARunIsRecorded: whoever runs the command finds what happened, whole, and
// every command that reads it says the same.
func TestARunIsRecorded(t *testing.T) {
	for _, m := range bothModes {
		t.Run(m, func(t *testing.T) {
			state, dir := newDirIn(t, "/var/tmp"), newDir(t)
			target := filepath.Join(newDirIn(t, "/var/tmp"), "target")
			out := command(t).env(stateEnv(state)...).run("run", "--mode", m, "--session", dir, "--python", pythonBin(),
				"-c", "try: open('"+target+"', 'w')\nexcept OSError: pass", "-c", "1 + 1")
			if out.code != 0 {
				t.Fatalf("%+v", out)
			}
			found := logsIn(t, state)
			if len(found) != 1 {
				t.Fatalf("%v", found)
			}
			got := readLog(t, found[0])
			witness, _ := got[0].Facts["witness"].([]any)
			digests, _ := got[0].Facts["digests"].(map[string]any)
			if got[0].Op != audit.OpSessionStart || len(witness) < 10 || digests["plan"] == nil || digests["policy"] == nil || digests["runtime"] == nil {
				t.Errorf("the first record: %+v", got[0])
			}
			if last := got[len(got)-1]; last.Op != audit.OpSessionEnd {
				t.Errorf("the last record: %+v", last)
			}
			decision := map[string]string{"report": audit.WouldDeny, "enforce": audit.Denied}[m]
			// A rule lets a file be changed, and its directory lets it be made.
			allowed := map[string]string{"report": target, "enforce": filepath.Dir(target)}[m]
			denied := 0
			for _, r := range got {
				if r.Denial() {
					denied++
					if r.Decision != decision || r.Target != target || r.Rule == "" || r.PID == 0 {
						t.Errorf("%+v", r)
					}
				}
			}
			if denied != 1 {
				t.Errorf("%d records of one attempt", denied)
			}

			cli := func(args ...string) outcome { return command(t).env(stateEnv(state)...).run(args...) }
			if out := cli("audit", "verify", found[0]); out.code != 0 || !strings.Contains(out.stdout, "as they were written") {
				t.Errorf("verify: %+v", out)
			}
			if out := cli("audit", "tail", "-n", "1"); out.code != 0 || !strings.Contains(out.stdout, "session.end") || strings.Count(out.stdout, "\n") != 1 {
				t.Errorf("tail: %+v", out)
			}
			for _, name := range []string{dir, got[0].Session, found[0]} {
				out := cli("violations", "--session", name)
				if out.code != 0 || !strings.Contains(out.stdout, decision+": write "+target) || !strings.Contains(out.stdout, "beneath "+dir) ||
					!strings.Contains(out.stdout, `{path: "`+allowed+`", access: [write], effect: allow`) {
					t.Errorf("violations --session %s: %+v", name, out)
				}
			}
			if out := cli("violations", "--session", "no such"); out.code != 2 {
				t.Errorf("%+v", out)
			}
			out = cli("audit", "export", "--format", "csv", found[0])
			if rows, err := csv.NewReader(strings.NewReader(out.stdout)).ReadAll(); err != nil || len(rows) != len(got)+1 {
				t.Errorf("csv: %v, %d rows", err, len(rows))
			}
			out = cli("audit", "export", "--format", "ocsf", found[0])
			if lines := strings.Split(strings.TrimSpace(out.stdout), "\n"); len(lines) != len(got) || !json.Valid([]byte(lines[0])) {
				t.Errorf("ocsf: %d events", len(lines))
			}
			if out := cli("audit", "export", found[0]); out.stdout != readFile(t, found[0]) {
				t.Error("jsonl is not the log")
			}
			if out := cli("audit", "export", "--format", "xml", found[0]); out.code != 2 {
				t.Errorf("%+v", out)
			}

			write(t, found[0], strings.Replace(readFile(t, found[0]), target, target+"x", 1))
			if out := cli("audit", "verify", found[0]); out.code != 1 || !strings.Contains(out.stdout, "record 3: is not what was written") {
				t.Errorf("verify after a change: %+v", out)
			}
		})
	}
}

// TestAModulesWordIsNoRecord: what a session declares in _AUDIT is kept as what it said,
// and never as a record of the launcher's own, nor as text that a terminal acts on.
func TestAModulesWordIsNoRecord(t *testing.T) {
	state, dir := newDirIn(t, "/var/tmp"), newDir(t)
	words := []string{"session.start", "session.end", "worker.start", "cell.start", "connect", "a\nb", "\x1b[2J"}
	listed, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	out := command(t).env(stateEnv(state)...).run("run", "--mode", "report", "--session", dir, "--python", pythonBin(),
		"-c", "for at, word in enumerate("+string(listed)+"): _AUDIT.append({'op': word, 'path': '/etc/of/%d' % at})")
	if out.code != 0 || strings.ContainsAny(out.stdout+out.stderr, "\x1b") {
		t.Fatalf("%+v", out)
	}
	log := logsIn(t, state)[0]
	lives, said := 0, map[string]bool{}
	for _, r := range readLog(t, log) {
		switch {
		case r.Source == audit.SourceDeclared:
			if r.Op != "write" {
				t.Errorf("a declared record is %q", r.Op)
			}
			word, _ := r.Facts["word"].(string)
			said[word] = true
		case r.Op == audit.OpSessionStart:
			lives++
		}
	}
	for _, word := range words {
		if !said[word] {
			t.Errorf("%q is lost: %v", word, said)
		}
	}
	if lives != 1 {
		t.Errorf("%d sessions begin in the record of one", lives)
	}
	for _, args := range [][]string{{"audit", "tail", "-n", "100", log}, {"violations", "--session", log}, {"policy", "suggest", "--python", pythonBin(), log}} {
		out := command(t).run(args...)
		if out.code > 1 || strings.ContainsAny(out.stdout, "\x1b") || !strings.Contains(out.stdout, "/etc/of") {
			t.Errorf("%v: %+v", args, out)
		}
	}
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if recorded, err := audit.Operations(file); err != nil || len(recorded.Runs) != 1 {
		t.Errorf("%d runs in the record of one: %v", len(recorded.Runs), err)
	}
}

func TestWhereARecordGoes(t *testing.T) {
	place, dir := newDirIn(t, "/var/tmp"), newDir(t)
	run := func(env []string, args ...string) outcome {
		t.Helper()
		return command(t).env(env...).run(append([]string{"run", "--session", dir, "--python", pythonBin(), "-c", "1"}, args...)...)
	}
	state := filepath.Join(place, "state")
	file := filepath.Join(place, "mine", "a.jsonl")
	for range 2 { // the second run goes on in the same file
		if out := run(stateEnv(state), "--audit", file); out.code != 0 || out.stderr != "" {
			t.Fatalf("%+v", out)
		}
	}
	starts := 0
	for _, r := range readLog(t, file) {
		if r.Op == audit.OpSessionStart {
			starts++
		}
	}
	if starts != 2 {
		t.Errorf("%d sessions in one file of two", starts)
	}
	if out := run(stateEnv(state), "--audit", "none"); out.code != 0 || len(logsIn(t, state)) != 0 {
		t.Errorf("--audit none: %+v, %v", out, logsIn(t, state))
	}
	if out := run(stateEnv(state), "--audit", filepath.Join(dir, "x", "a.jsonl")); out.code != 2 || !strings.Contains(out.stderr, "overlaps") {
		t.Errorf("a record in the session directory: %+v", out)
	}
	if out := run(stateEnv(state), "--audit-sync", "each"); out.code != 0 || len(logsIn(t, state)) != 1 {
		t.Errorf("%+v", out)
	}
	if out := run(stateEnv(state), "--audit-sync", "often"); out.code != 2 {
		t.Errorf("%+v", out)
	}
	// A state directory that cannot be used: said under report, refused under
	// enforce and where a file was named.
	write(t, filepath.Join(place, "no-directory"), "")
	broken := stateEnv(filepath.Join(place, "no-directory"))
	if out := run(broken); out.code != 0 || !strings.Contains(out.stderr, "not recorded") || out.stdout != "1\n" {
		t.Errorf("report: %+v", out)
	}
	if out := run(broken, "--mode", "enforce"); out.code != 2 || out.stdout != "" {
		t.Errorf("enforce: %+v", out)
	}
	if out := run(broken, "--audit", filepath.Join(place, "no-directory", "a.jsonl")); out.code != 2 || out.stdout != "" {
		t.Errorf("a named file: %+v", out)
	}
	if out := run([]string{"PATH=" + os.Getenv("PATH")}); out.code != 0 || !strings.Contains(out.stderr, "no home") {
		t.Errorf("no home: %+v", out)
	}
}

// TestARecordOutlivesItsLauncher: what was acknowledged before a SIGKILL is
// there, and tail -f shows it as it comes.
func TestARecordOutlivesItsLauncher(t *testing.T) {
	place, dir := newDirIn(t, "/var/tmp"), newDir(t)
	file := filepath.Join(place, "audit", "a.jsonl")
	run := exec.Command(binary(t), "run", "--session", dir, "--python", pythonBin(), "--audit", file,
		"-c", "open('/etc/passwd', 'r+')", "-c", "import time; time.sleep(600)")
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer run.Wait()
	defer run.Process.Kill()
	for deadline := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
		if data, _ := os.ReadFile(file); strings.Count(string(data), `"op":"cell.start"`) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the second cell was not recorded")
		}
	}
	tail := exec.Command(binary(t), "audit", "tail", "-f", "-n", "100", file)
	out, err := tail.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tail.Start(); err != nil {
		t.Fatal(err)
	}
	defer tail.Wait()
	defer tail.Process.Kill()
	lines := bufio.NewScanner(out)
	seen := 0
	for seen < 2 && lines.Scan() {
		if strings.Contains(lines.Text(), "cell.start") {
			seen++
		}
	}
	run.Process.Kill()
	run.Wait()
	v, err := audit.Verify(file)
	if err != nil || !v.Clean() || v.Closed || v.Live || v.Records < 5 {
		t.Fatalf("%v %+v", err, v)
	}
	if out := command(t).run("run", "--session", dir, "--python", pythonBin(), "--audit", file, "-c", "1"); out.code != 0 {
		t.Fatalf("%+v", out)
	}
	ended := false
	for !ended && lines.Scan() {
		ended = strings.Contains(lines.Text(), "session.end")
	}
	if !ended {
		t.Error("tail -f did not show what came later")
	}
	readLog(t, file)
}

// TestAGuestCannotReachTheRecord: neither the default place nor a named one.
func TestAGuestCannotReachTheRecord(t *testing.T) {
	dir := newDir(t)
	for _, m := range bothModes {
		for _, named := range []bool{false, true} {
			state := newDirIn(t, "/var/tmp")
			args := []string{"run", "--mode", m, "--session", dir, "--python", pythonBin(), "-c", `
import os
for at, _, names in os.walk("` + state + `"):
    for n in names: print("SEEN", os.path.join(at, n))`}
			file := filepath.Join(state, "named", "a.jsonl")
			if named {
				args = append(args, "--audit", file)
			}
			out := command(t).env(stateEnv(state)...).run(args...)
			if out.code != 0 || strings.Contains(out.stdout, "SEEN") {
				t.Errorf("%s, named %v: %+v", m, named, out)
			}
			if !named {
				file = logsIn(t, state)[0]
			}
			readLog(t, file) // the positive control: it was there
		}
	}
}
