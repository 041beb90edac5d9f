package integration

// transferAttacks bring bytes into a file without write(2), or take them out of it,
// beneath OUT. Each needs a descriptor for writing, and is refused where it asks for
// one; what is said to work through one for reading is tried as well, and must leave
// the file as it was.
var transferAttacks = []attack{
	{name: "copy_file_range", code: `
def go():
    mine = os.open("source", os.O_RDWR | os.O_CREAT); os.write(mine, b"evil")
    os.copy_file_range(mine, os.open(OUT + "/file", os.O_WRONLY), 4, 0, 0)
verdict = attempt(go)`},
	{name: "sendfile", code: `
def go():
    mine = os.open("source", os.O_RDWR | os.O_CREAT); os.write(mine, b"evil")
    os.sendfile(os.open(OUT + "/file", os.O_WRONLY), mine, 0, 4)
verdict = attempt(go)`},
	{name: "splice", code: `
def go():
    r, w = os.pipe(); os.write(w, b"evil")
    if raw(275, r, 0, os.open(OUT + "/file", os.O_WRONLY), 0, 4, 0) != 4: raise OSError(5, "short")
verdict = attempt(go)`},
	{name: "a reflink", code: `
import fcntl
def go():
    mine = os.open("source", os.O_RDWR | os.O_CREAT); os.write(mine, b"evil")
    fd = os.open(OUT + "/file", os.O_WRONLY)
    try: fcntl.ioctl(fd, 0x40049409, mine)
    except OSError as problem:
        if problem.errno not in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL): raise
        os.write(fd, b"done")  # this file system knows no reflinks
verdict = attempt(go)`},
	{name: "a hole punched", code: `
def go():
    fd = os.open(OUT + "/file", os.O_RDWR)
    raw(285, fd, 3, 0, 2)
verdict = attempt(go)`},
	{name: "fallocate", code: `
def go(): os.posix_fallocate(os.open(OUT + "/file", os.O_WRONLY), 0, 100000)
verdict = attempt(go)`},
	{name: "pwritev2", code: `
def go(): os.pwritev(os.open(OUT + "/file", os.O_RDWR), [b"evil"], 0)
verdict = attempt(go)`},
	{name: "O_DIRECT", code: `verdict = attempt(os.open, OUT + "/file", os.O_RDWR | os.O_DIRECT)`},
	{name: "by the files of its own mappings", where: asRoot, code: `
import mmap
def go():
    fd = os.open(OUT + "/file", os.O_RDWR)
    page = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    for line in open("/proc/self/maps"):
        if OUT in line:
            at = line.split()[0]
            again = os.open("/proc/self/map_files/" + at, os.O_RDWR)
    os.write(fd, b"evil")
verdict = attempt(go)`},
}
