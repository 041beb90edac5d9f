package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplApproves: a call that the policy wants confirmed is shown, and carried out
// when the answer, typed after the question, is yes.
func TestReplApproves(t *testing.T) {
	home, dir := desk(t)
	for _, name := range []string{"orders.py", "orders.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../integration/testdata/extension", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(home, "extensions"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, "extensions", name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const make = `import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute("create table orders (amount)"); c.executemany("insert into orders values (?)", [(1,), (2,), (3,)]); c.commit()`
	if out, err := exec.Command("python3", "-c", make, filepath.Join(home, "orders.db")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := at(t, home, dir, "repl", "--extensions", filepath.Join(home, "extensions"), "--policy", filepath.Join(home, "extensions", "orders.yaml"))
	p.await(prompt)
	change := func(amount string) { p.line("orders.execute(sql='delete from orders where amount = " + amount + "')") }
	change("1")
	shown := p.await("approve it once? [y/N] ")
	for _, want := range []string{"host call orders.execute wants to be approved: a person looks at each change", `"sql":"delete from orders where amount = 1"`, "orders.change"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the question does not show %q: %q", want, shown)
		}
	}
	p.line("n")
	p.await("denied")
	p.await(prompt)
	change("1")
	p.await("approve it once? [y/N] ")
	p.line("yes")
	p.await("1\r\n")
	p.await(prompt)
	// What was typed before the question is no answer to it.
	p.line("import time; print('sl' + 'eeps', flush=True); time.sleep(2); orders.execute(sql='delete from orders')")
	p.await("sleeps")
	p.line("y")
	p.await("approve it once? [y/N] ")
	p.press(ctrlC)
	p.await("KeyboardInterrupt")
	p.await(prompt)
	p.line("orders.query(sql='select count(*) as n from orders')[0]['n'] + 40")
	p.await("42\r\n")
	p.await(prompt)
	p.press(ctrlD)
	p.exit()
}
