package integration

import (
	"os"
	"path/filepath"
	"testing"

	"cellblock/kernel"
)

// TestTheLaunchersStateKeepsItsPlace: no session moves a directory above the launcher's
// state away to make another one there, which the launcher would take for its own. The
// control moves a file beside it.
func TestTheLaunchersStateKeepsItsPlace(t *testing.T) {
	require(t, needUserns, needOverlay)
	for _, m := range []string{"off", "report", "shadow", "enforce"} {
		t.Run(m, func(t *testing.T) {
			t.Parallel()
			home := newDirIn(t, "/var/tmp")
			state := filepath.Join(home, ".local/state/cellblock")
			if err := os.MkdirAll(state+"/audit", 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, home+"/.local/share/x", "beside")
			s := open(t, mode(m), func(o *kernel.Options) { o.State, o.Shadow = []string{state}, state+"/shadow" })
			s.ok(`import os
def move(at):
    try: os.rename(at, at + ".away")
    except OSError as problem: return problem.strerror
    os.rename(at + ".away", at)
    return "moved"`)
			for _, dir := range []string{state, home + "/.local/state", home + "/.local", home} {
				s.shows(`move(`+quote(dir)+`)`, map[bool]string{false: `'Device or resource busy'`, true: `'Read-only file system'`}[m == "enforce"])
			}
			want := `'moved'`
			if m == "enforce" {
				want = `'Read-only file system'`
			}
			s.shows(`move(`+quote(home+"/.local/share/x")+`)`, want)
		})
	}
}
