package policy

// This file says what the jail itself gives and refuses, whatever the document
// and the mode: its private places, its devices, and what is read-only there.

// own are the mount points of the jail's own file systems.
var own = []string{"/tmp", "/run", "/dev", "/dev/shm", "/dev/pts", "/proc", "/sys"}

func private() []Rule {
	place := func(name, path, reason string, access Access) Rule {
		return Rule{ID: "ground." + name, Path: path, Access: access, Reason: reason}
	}
	const gone = "private to the session, gone at its end"
	return []Rule{
		place("tmp", "/tmp", gone, AccessRead|AccessWrite|AccessExec),
		place("shm", "/dev/shm", gone, AccessRead|AccessWrite),
		place("pts", "/dev/pts", "terminals of the session itself", AccessRead|AccessWrite),
		place("proc", "/proc", "entries of the session's own processes", AccessRead|AccessModify),
	}
}

// sealed are read-only in every mode. A deeper private place is not.
func sealed() []Rule {
	place := func(name, path, reason string) Rule {
		return Rule{ID: "ground." + name, Path: path, Access: AccessWrite, Enforced: true, Reason: reason}
	}
	return []Rule{
		place("dev", "/dev", "devices of the session's own, and no more can be made"),
		place("sys", "/sys", "a window on the host's Linux"),
		place("proc.sys", "/proc/sys", "settings of the host's Linux"),
		place("proc.bus", "/proc/bus", "settings of the host's Linux"),
		place("proc.fs", "/proc/fs", "settings of the host's Linux"),
		place("proc.irq", "/proc/irq", "settings of the host's Linux"),
	}
}

// unexecutable are mounted so that nothing in them is executed, in every mode.
func unexecutable() []Rule {
	var out []Rule
	for _, path := range []string{"/dev", "/proc", "/sys"} {
		out = append(out, Rule{ID: "ground.noexec", Path: path, Access: AccessExec, Enforced: true,
			Reason: "nothing is executed from devices and windows on the host's Linux"})
	}
	return out
}

func devices() []Rule {
	var out []Rule
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx",
		"stdin", "stdout", "stderr", "fd"} {
		out = append(out, Rule{ID: "ground.device." + name, Path: "/dev/" + name, Access: AccessModify,
			Reason: "harmless device of the session's own /dev"})
	}
	return out
}

// isOwn reports whether p is one of the jail's own mount points.
func isOwn(p string) bool {
	for _, o := range own {
		if p == o {
			return true
		}
	}
	return p == "/"
}

// Own reports whether a path lies in a place of the jail's own, where nothing of the
// host is: no rule opens more there.
func Own(p string) bool { return inOwn(cleaned(p)) }

// inOwn is Own of a canonical path.
func inOwn(p string) bool {
	for _, o := range own {
		if contains(o, p) {
			return true
		}
	}
	return false
}
