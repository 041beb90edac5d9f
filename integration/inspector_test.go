package integration

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// inspector is the MCP Inspector's command line, a client that is not ours.
const inspector = "@modelcontextprotocol/inspector@0.21.2"

// needNPM asks for npx and for a registry, or a cache, that has the Inspector.
var needNPM = register("npm", func() string {
	if _, err := exec.LookPath("npx"); err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "npm", "view", inspector, "version").CombinedOutput(); err != nil || len(out) == 0 {
		return "npm does not find " + inspector
	}
	return ""
})

// TestInspector lists and calls the tool with the Inspector's command line.
func TestInspector(t *testing.T) {
	require(t, needNPM)
	dir := newDir(t)
	run := func(args ...string) []byte {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		all := append([]string{"-y", inspector, "--cli", binary(t), "mcp", "--session", dir, "--mode", "enforce", "--python", pythonBin()}, args...)
		cmd := exec.CommandContext(ctx, "npx", all...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("npx %v: %v\n%s\n%.3000s", args, err, out, stderr.String())
		}
		return out
	}
	var listed struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	out := run("--method", "tools/list")
	if err := json.Unmarshal(out, &listed); err != nil || len(listed.Tools) != 1 || listed.Tools[0].Name != "python" {
		t.Fatalf("tools/list gives %s (%v)", out, err)
	}
	var called struct {
		Content           []content `json:"content"`
		StructuredContent details   `json:"structuredContent"`
		IsError           bool      `json:"isError"`
	}
	out = run("--method", "tools/call", "--tool-name", "python", "--tool-arg", `code=open("by-inspector.txt", "w").write("x"); 6 * 7`)
	if err := json.Unmarshal(out, &called); err != nil {
		t.Fatalf("tools/call gives %s (%v)", out, err)
	}
	if called.IsError || len(called.Content) == 0 || !strings.Contains(called.Content[0].Text, "42") || called.StructuredContent.Tier != "jail" {
		t.Errorf("tools/call gives %s", out)
	}
	if _, err := os.Stat(dir + "/by-inspector.txt"); err != nil {
		t.Error(err)
	}
}
