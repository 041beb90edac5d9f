package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The worker's own modules come from the store, which no session can see, and a
// store that others could have written is not used.
func TestBytecodeIsKeptInTheLaunchersState(t *testing.T) {
	needStage(t)
	home, err := os.MkdirTemp("/var/tmp", "cellblock-test-") // /tmp is another one inside
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	state := filepath.Join(home, "state")
	options := Options{State: []string{state}, Bytecode: filepath.Join(state, "bytecode")}
	const cached = `sys.modules["_cellblock.serve"].__cached__.startswith(os.path.dirname(sys.modules["_cellblock.serve"].__file__)) and os.path.exists(sys.modules["_cellblock.serve"].__cached__)`
	s := open(t, options)
	if got := value(t, s, cached); got != "True" {
		t.Fatalf("byte code beside the source: %s", got)
	}
	if got := value(t, s, fmt.Sprintf("os.listdir(%q), os.path.exists(%q)", home, options.Bytecode)); got != "(['state'], False)" {
		t.Errorf("a session sees the launcher's state: %s", got)
	}
	kept, err := filepath.Glob(filepath.Join(options.Bytecode, "*", "serve.*.pyc"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("store: %v %v", kept, err)
	}
	if err := os.Chmod(filepath.Dir(kept[0]), 0o777); err != nil {
		t.Fatal(err)
	}
	if got := value(t, open(t, options), cached); got != "False" {
		t.Errorf("with a store that others can write: %s", got)
	}
	if _, err := Open(Options{SessionDir: t.TempDir(), Bytecode: filepath.Join(home, "elsewhere")}); err == nil {
		t.Error("a store outside the launcher's state was accepted")
	}
}
