package integration

// linkAttacks bring a name of OUT and one of the session together, in either
// direction, or take a name in a way that rename and link have flags for.
var linkAttacks = []attack{
	{name: "a file taken into the session", code: `verdict = attempt(os.rename, OUT + "/victim", "taken")`, refused: crossing},
	{name: "a file exchanged with one of the session", code: `
open("mine", "w").close()
verdict = attempt(raw, 316, -100, b"mine", -100, (OUT + "/file").encode(), 2)`, refused: crossing},
	{name: "a rename that leaves a whiteout", code: `verdict = attempt(raw, 316, -100, (OUT + "/victim").encode(), -100, (OUT + "/white").encode(), 4)`,
		where: asRoot, refused: crossing, names: 2},
	{name: "a rename to a free name only", code: `verdict = attempt(raw, 316, -100, (OUT + "/victim").encode(), -100, (OUT + "/free").encode(), 1)`, names: 2},
	{name: "a file of the host linked into the session", code: `verdict = attempt(os.link, OUT + "/file", "hard")`, refused: crossing, names: keptApart},
	{name: "a file of the session linked out", code: `
open("mine", "w").close()
verdict = attempt(os.link, "mine", OUT + "/hard")`, refused: crossing},
	{name: "linked by its descriptor", code: `
fd = os.open(OUT + "/file", os.O_RDONLY)
verdict = attempt(raw, 265, -100, f"/proc/self/fd/{fd}".encode(), -100, (OUT + "/hard2").encode(), 0x400)`, refused: crossing},
	{name: "a file without a name linked out", code: `
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
verdict = attempt(raw, 265, -100, f"/proc/self/fd/{fd}".encode(), -100, (OUT + "/tmpfile").encode(), 0x400)`, refused: crossing},
	{name: "mknod of a file", code: `verdict = attempt(os.mknod, OUT + "/node", 0o100600)`},
	{name: "mknod of a socket", code: `verdict = attempt(os.mknod, OUT + "/sock", 0o140600)`},
	{name: "mkdirat by a descriptor", code: `verdict = attempt(lambda: os.mkdir("sub", dir_fd=os.open(OUT, os.O_RDONLY)))`},
	{name: "from a directory that was entered by its descriptor", code: `
def go():
    here = os.getcwd()
    os.fchdir(os.open(OUT, os.O_RDONLY))
    try: open("file", "w").close()
    finally: os.chdir(here)
verdict = attempt(go)`},
	{name: "by the working directory of the parent", code: `
def go():
    here = os.getcwd(); os.chdir(OUT)
    try: said = in_child(open, f"/proc/{os.getpid()}/cwd/file", "w")
    finally: os.chdir(here)
    if said != "done": raise OSError(getattr(errno, said, 5), said)
verdict = attempt(go)`},
	{name: "by a chain of links", code: `
for here, there in (("c1", "c2"), ("c2", "c3"), ("c3", OUT)):
    os.path.lexists(here) or os.symlink(there, here)
verdict = attempt(open, "c1/file", "w")`},
	{name: "by a link that is swapped while it is used", race: true, code: `
import threading
open("harmless", "w").close()
going = True
def swap():
    n = 0
    while going:
        n += 1
        for there in ("harmless", OUT + "/file"):
            try:
                os.symlink(there, f"next{n}"); os.rename(f"next{n}", "flip")
            except OSError: pass
th = threading.Thread(target=swap); th.start()
said = set()
for i in range(TRIES):
    try:
        with open("flip", "r+") as f: f.write("evil")
        if open(OUT + "/file").read().startswith("evil"): said.add("done"); break
    except OSError as problem: said.add(errno.errorcode[problem.errno])
going = False; th.join()
verdict = "done" if "done" in said else ("EROFS" if said <= {"EROFS", "EACCES", "EPERM", "ENOENT"} else str(said))`},
}

// crossing are the answers to a name that crosses from one mount to another.
var crossing = []string{"EXDEV", "EROFS", "EACCES", "EPERM", "EINVAL", "ENOSYS"}

// resolveAttacks are openat2 with each of its flags: ENOSYS where the profile has
// libc do without it.
var resolveAttacks = func() (rows []attack) {
	for _, f := range []struct{ name, flag string }{
		{"none", "0"}, {"NO_XDEV", "1"}, {"NO_MAGICLINKS", "2"}, {"NO_SYMLINKS", "4"}, {"BENEATH", "8"}, {"IN_ROOT", "16"}, {"CACHED", "32"},
	} {
		rows = append(rows, attack{name: "openat2 with RESOLVE " + f.name, refused: append([]string{"ENOSYS", "EAGAIN"}, "EROFS", "EACCES", "EPERM"), code: `
fd = os.open(OUT, os.O_RDONLY)
try: open(OUT + "/file").read()
finally: verdict = attempt(raw, 437, fd, b"file", struct.pack("QQQ", os.O_WRONLY, 0, ` + f.flag + `), 24)`})
	}
	return rows
}()
