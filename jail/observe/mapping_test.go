package observe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cellblock/jail/internal/require"
)

// TestNextMapping holds both ways to find a mapping against one that is known: of three
// pages of a file, of which the middle one can be executed.
func TestNextMapping(t *testing.T) {
	page := os.Getpagesize()
	for _, name := range []string{"plain", "with a\nnew line", "removed", "kept (deleted)"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, make([]byte, 3*page), 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		memory, err := unix.Mmap(int(file.Fd()), 0, 3*page, unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(memory)
		if err := unix.Mprotect(memory[page:2*page], unix.PROT_READ|unix.PROT_EXEC); err != nil {
			require.Skip(t, "files", "those in the temporary directory cannot be executed from: "+err.Error())
		}
		want := path
		if name == "removed" {
			want += removed
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		maps, err := os.Open("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		defer maps.Close()
		for how, next := range map[string]func(*os.File, uint64) (mapping, error){"asked": nextMapping, "read": readMapping} {
			at := addressOf(memory)
			for i := range uint64(3) {
				begin := at + i*uint64(page)
				m, err := next(maps, begin+1)
				if err != nil || m.begin != begin || m.end != begin+uint64(page) || m.executable != (i == 1) || m.name != want {
					t.Errorf("%s, %q, page %d: %+v, %v", how, name, i, m, err)
				}
			}
			if _, err := next(maps, 1<<63); err != unix.ENOENT {
				t.Errorf("%s: behind everything: %v", how, err)
			}
		}
	}
}

// FuzzMapping: a name in a line of /proc/<pid>/maps is what code that nobody trusts has
// called its file. Whatever it is, a mapping that is told of has a path and numbers.
func FuzzMapping(f *testing.F) {
	for _, seed := range []string{
		"", "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon", "7ffe-7fff rw-p 00000000 00:00 0 [stack]",
		"0-ffffffffffffffff --xp 0 fe:01 1 /a\\012b", "1-2 r-xp 0 1:2 3 ", "1-2 r-xp 0 1:2 3 not a path", "x-y r-xp 0 1:2 3 /a", "1 2 3 4 5 6", "1-2-3 r-xp 0 1:2:3 4 /x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		m, ok := parseMapping(line)
		if !ok {
			return
		}
		if !strings.HasPrefix(m.name, "/") || !strings.Contains(line, "-") || !strings.Contains(line, ":") {
			t.Errorf("%q is read as %+v", line, m)
		}
	})
}
