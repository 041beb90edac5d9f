package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"cellblock/policy"
)

// The worker's own modules come compiled from the store, which no session can
// change, and a store that others could have written is not used.
func TestRuntimeIsKeptInTheLaunchersState(t *testing.T) {
	needStage(t)
	home, err := os.MkdirTemp("/var/tmp", "cellblock-test-") // /tmp is another one inside
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	if err := os.WriteFile(filepath.Join(home, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(home, "state")
	options := Options{State: []string{state}, Runtime: filepath.Join(state, "runtime")}
	const cached = `os.path.exists(sys.modules["_cellblock.serve"].__cached__)`
	for _, mode := range []policy.Mode{policy.Report, policy.Enforce} {
		options.Mode = mode
		s := open(t, options)
		if got := value(t, s, cached); got != "True" {
			t.Fatalf("%s: byte code beside the source: %s", mode, got)
		}
		run(t, s, "def names(at):\n    try: return sorted(os.listdir(at))\n    except PermissionError: return 'refused'")
		if got := value(t, s, fmt.Sprintf("names(%q), names(%q), os.path.exists(%q)", home, state, options.Runtime)); got != "(['secret', 'state'], 'refused', False)" {
			t.Errorf("%s: what a session sees of the launcher's state: %s", mode, got)
		}
		for _, where := range []string{`"` + state + `/"`, `os.path.dirname(sys.modules["_cellblock.serve"].__file__) + "/"`} {
			r := run(t, s, `open(`+where+` + "planted.py", "w")`)
			if !r.IsError || r.Details.Error.Name != "OSError" && r.Details.Error.Name != "PermissionError" {
				t.Errorf("%s: writing to %s: %+v", mode, where, r.Details.Error)
			}
		}
	}
	if err := os.Chmod(options.Runtime, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := value(t, open(t, options), cached); got != "False" {
		t.Errorf("with a store that others can write: %s", got)
	}
	if _, err := Open(Options{SessionDir: t.TempDir(), Runtime: filepath.Join(home, "elsewhere")}); err == nil {
		t.Error("a store outside the launcher's state was accepted")
	}
}
