package integration

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cellblock/kernel/wire"
	"cellblock/pyruntime"
)

// TestAClientFromTheTextAlone: a host that was written from PROTOCOL.md drives a
// worker through every request of it. Nothing of Cellblock is between the two.
func TestAClientFromTheTextAlone(t *testing.T) {
	const path = "testdata/protocol/client.py"
	client := readFile(t, path)
	if strings.Contains(client, "_cellblock") || regexp.MustCompile(`(?m)^from `).MatchString(client) {
		t.Error("the client knows more than the text")
	}
	for _, op := range wire.Ops() {
		if !strings.Contains(client, `"`+string(op)+`"`) {
			t.Errorf("the client does not use %s", op)
		}
	}
	runtime := newDir(t)
	if err := pyruntime.WriteTo(runtime); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*hang)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/usr/bin/python3", path, filepath.Join(runtime, "boot.py")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var steps []string
	for _, m := range regexp.MustCompile(`(?m)^ok (\w+)$`).FindAllStringSubmatch(string(out), -1) {
		steps = append(steps, m[1])
	}
	want := []string{"install", "confine", "network", "run", "tools", "questions", "cancel", "scopes", "stdin", "interrupt", "pipes", "definitions", "refused", "reset", "close"}
	if !slices.Equal(steps, want) {
		t.Errorf("the client has seen %v, want %v", steps, want)
	}
}
