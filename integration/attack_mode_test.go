package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestAttacksOnNeighbours: directories whose names begin as the session's does, or
// are it in other letters, are not the session's. The control writes into each.
func TestAttacksOnNeighbours(t *testing.T) {
	base := newDirIn(t, "/var/tmp")
	own := base + "/s\u00e9ssion"
	neighbours := []string{own + "-evil", own + ".bak", own + " ", base + "/S\u00c9SSION", base + "/se\u0301ssion", base + "/s", own + "2/deep"}
	for _, dir := range append(neighbours, own) {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []string{"enforce", "shadow"} {
		s := open(t, inMode(t, m), at(own))
		s.ok(`open("own", "w").close()`)
		for _, dir := range neighbours {
			write(t, dir+"/control", "x") // this process may
			r := s.run("open(" + quote(dir+"/evil") + `, "w").close()`)
			if m == "enforce" && !r.IsError {
				t.Errorf("%s: a write to %s is allowed", m, dir)
			}
			if _, err := os.Lstat(dir + "/evil"); err == nil {
				t.Errorf("%s: a write to %s has come about on the host", m, dir)
			}
		}
	}
}

// TestAttacksOnTheMode: nothing that a session or the one who calls it may write
// loosens its policy: no file in the workspace, variable, argument or metadata.
func TestAttacksOnTheMode(t *testing.T) {
	dir, out := newDirIn(t, "/var/tmp"), newDirIn(t, "/var/tmp")
	if err := os.Chmod(out, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".cellblock.yaml", "cellblock.yaml", "policy.yaml", ".cellblock/policy.yaml", ".cellblock/config.json", "profile.json"} {
		write(t, dir+"/"+name, "version: 1\nname: open\nmode: off\nfs: {rules: [{id: all, path: /, access: [write], effect: allow, reason: mine}]}\n")
	}
	attempt := "open(" + quote(out+"/evil") + `, "w").close()`
	refused := func(how string, failed bool) {
		t.Helper()
		if _, err := os.Lstat(out + "/evil"); err == nil || !failed {
			t.Errorf("%s: the write came about", how)
			os.Remove(out + "/evil")
		}
	}
	s := open(t, at(dir))
	refused("files in the workspace", s.run(attempt).IsError)
	s.run(`
import os, sys
for name in ("CELLBLOCK_MODE", "CELLBLOCK_POLICY", "CELLBLOCK_TIER", "MODE"): os.environ[name] = "off"
for module in list(sys.modules.values()):
    for name in ("MODE", "mode", "POLICY", "policy"):
        if getattr(module, "__name__", "").startswith("_cellblock"): setattr(module, name, "off")`)
	refused("variables of the worker", s.run(attempt).IsError)
	s.reset()
	refused("after a reset", s.run(attempt).IsError)

	environ := append(os.Environ(), "CELLBLOCK_MODE=off", "CELLBLOCK_POLICY="+dir+"/policy.yaml", "CELLBLOCK_TIER=process", "MODE=off")
	o := command(t).dir(dir).env(environ...).run("run", "--mode", "enforce", "--session", dir, "--python", pythonBin(), "-c", attempt)
	refused("variables of the command", o.code == 1)

	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	c := mcpClient(t, dir, nil)
	for _, extra := range []map[string]any{{"mode": "off"}, {"policy": "open"}, {"tier": "process"}, {"session": "/"}, {"cwd": out}, {"profile": "../../default"}} {
		arguments := map[string]any{"code": attempt}
		for k, v := range extra {
			arguments[k] = v
		}
		result, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "python", Arguments: arguments, Meta: mcp.Meta(extra)})
		refused("an argument", err != nil || result.IsError)
	}
	result, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "python", Arguments: map[string]any{"code": attempt}, Meta: mcp.Meta{"mode": "off", "policy": "open"}})
	refused("metadata", err != nil || result.IsError)

	// Control: with the mode that only an operator names, the write comes about.
	o = command(t).run("run", "--mode", "report", "--session", dir, "--python", pythonBin(), "-c", attempt)
	if _, err := os.Lstat(out + "/evil"); err != nil || o.code != 0 {
		t.Errorf("control: %v %s", err, o.stderr)
	}
}

// TestAttacksOnTheRecord: a name chosen to pose as a record, or to act on a
// terminal, is one record like any other, and what prints it makes it harmless.
func TestAttacksOnTheRecord(t *testing.T) {
	for _, m := range everyMode {
		t.Run(m, func(t *testing.T) {
			dir, _ := outside(t)
			log := filepath.Join(newDirIn(t, "/var/tmp"), "audit", "s.jsonl")
			s := open(t, inMode(t, m), audited(log), at(newDirIn(t, "/var/tmp")))
			s.ok(attackOn(dir, 1))
			for _, a := range nameAttacks {
				s.run(a.code)
			}
			if err := s.kernel.Close(); err != nil {
				t.Fatal(err)
			}
			records := readLog(t, log)
			if lines := strings.Count(readFile(t, log), "\n"); lines != len(records) {
				t.Errorf("%d lines, %d records", lines, len(records))
			}
			found := 0
			for _, r := range records {
				if r.Denial() && strings.HasPrefix(r.Target, dir) {
					found++
				}
			}
			if found < 5 {
				t.Errorf("%d records of %d attempts", found, len(nameAttacks))
			}
			for _, args := range [][]string{{"audit", "tail", "-n", "100", log}, {"violations", "--session", log}, {"audit", "export", "--format", "csv", log}} {
				out := command(t).run(args...)
				if out.code != 0 || out.stdout == "" {
					t.Errorf("%v: %+v", args, out)
				}
				lacks(t, strings.Join(args[:2], " "), out.stdout+out.stderr, "\x1b")
				lacks(t, strings.Join(args[:2], " "), out.stdout+out.stderr, "\n{\"seq\":1}")
			}
		})
	}
}
