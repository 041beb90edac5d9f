package extension

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzTrust: of a file of trust that is anything but the directory's own, nothing is
// trusted.
func FuzzTrust(f *testing.F) {
	const dir = "/home/user/.cellblock/extensions"
	for _, seed := range []string{
		"", "{}", "null", "[]", `{"directory":"/other","files":{"a.py":"x"}}`, `{"directory":"` + dir + `","files":{"a.py":"x"}}`,
		`{"directory":"` + dir + `","files":{"a.py":1}}`, `{"Directory":"` + dir + `"}`, `{"directory":"` + dir + `"}{}`, `{"directory":"` + dir + `\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	store := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(trustPath(store, dir), text, 0o600); err != nil {
			t.Fatal(err)
		}
		kept, err := ReadTrust(store, dir)
		if kept == nil || kept.Directory != dir {
			t.Fatalf("%q gives %+v, %v", text, kept, err)
		}
		if err != nil && len(kept.Files) > 0 {
			t.Errorf("%q is trusted in part, and an error: %v", text, err)
		}
		if other, err := ReadTrust(store, filepath.Dir(dir)); err != nil || len(other.Files) > 0 {
			t.Errorf("%q is taken for another directory's: %+v, %v", text, other, err)
		}
	})
}
