package kernel

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cellblock/policy"
)

// libraries are where interpreters and their extension modules have what they
// load, on the distributions that Linux has.
var libraries = []struct{ path, reason string }{
	{"/lib", "shared libraries"}, {"/lib64", "shared libraries"}, {"/usr/lib", "shared libraries"}, {"/usr/lib64", "shared libraries"},
	{"/usr/local/lib", "shared libraries"}, {"/etc/ld.so.cache", "where the loader finds libraries"}, {"/etc/ld.so.conf", "where the loader finds libraries"},
	{"/etc/ld.so.conf.d", "where the loader finds libraries"}, {"/usr/share/zoneinfo", "time zones"}, {"/etc/localtime", "the time zone"},
	{"/etc/passwd", "names of users"}, {"/etc/group", "names of groups"}, {"/etc/hosts", "names of hosts"}, {"/etc/nsswitch.conf", "where names are looked up"},
}

// interpreterNeeds lists what an interpreter reads and executes whatever the
// policy lists, and the symbolic links on the way there.
func interpreterNeeds(python string) ([]policy.Rule, []policy.HostLink) {
	var (
		needs []policy.Rule
		links []policy.HostLink
	)
	add := func(id, path, reason string, access policy.Access) {
		found := lookup(path)
		if !found.Exists {
			return
		}
		for _, l := range found.Links {
			if !slices.Contains(links, l) {
				links = append(links, l)
			}
		}
		needs = append(needs, policy.Rule{ID: id, Path: found.Path, Access: access, Reason: reason})
	}
	for _, l := range libraries {
		add("ground.library", l.path, l.reason, policy.AccessRead)
	}
	const reason = "the interpreter"
	add("ground.interpreter", python, reason, policy.AccessRead|policy.AccessExec)
	for _, p := range interpreterPaths(python, []string{"/"}) {
		if p != python {
			add("ground.interpreter", p, reason, policy.AccessRead)
		}
	}
	if loader := programInterpreter(python); loader != "" {
		add("ground.loader", loader, "the interpreter's loader", policy.AccessRead|policy.AccessExec)
	}
	return needs, links
}

// programInterpreter is the loader that an executable names (elf(5), PT_INTERP);
// empty for a static one.
func programInterpreter(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	program, err := elf.NewFile(file)
	if err != nil {
		return ""
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			name := make([]byte, p.Filesz)
			if _, err := p.ReadAt(name, 0); err == nil {
				if text := strings.TrimRight(string(name), "\x00"); filepath.IsAbs(text) {
					return text
				}
			}
		}
	}
	return ""
}
