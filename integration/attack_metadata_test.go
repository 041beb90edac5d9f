package integration

// metadataAttacks change what is known of a file beneath OUT and not what is in it.
// Landlock knows none of them: the mounts refuse.
var metadataAttacks = []attack{
	{name: "fchmodat2", code: `verdict = attempt(raw, 452, -100, (OUT + "/file").encode(), 0o600, 0)`, refused: orUnknown},
	{name: "fchmodat2 of a descriptor without rights", code: `
fd = os.open(OUT + "/file", os.O_PATH)
verdict = attempt(raw, 452, fd, b"", 0o600, 0x1000)`, refused: orUnknown},
	{name: "chown", code: `verdict = attempt(os.chown, OUT + "/file", os.getuid(), os.getgid())`},
	{name: "lchown", code: `verdict = attempt(os.lchown, OUT + "/file", os.getuid(), os.getgid())`},
	{name: "fchown by a read-only descriptor", code: `verdict = attempt(os.fchown, os.open(OUT + "/file", os.O_RDONLY), os.getuid(), os.getgid())`},
	{name: "utime of a descriptor", code: `verdict = attempt(os.utime, os.open(OUT + "/file", os.O_RDONLY), (1, 1))`},
	{name: "chmod by /proc/self/fd", code: `verdict = attempt(os.chmod, f"/proc/self/fd/{os.open(OUT + '/file', os.O_PATH)}", 0o600)`},
	{name: "chmod of the directory", code: `verdict = attempt(os.chmod, OUT + "/empty", 0o700)`},
	{name: "lsetxattr", code: `verdict = attempt(lambda: os.setxattr(OUT + "/file", "user.canary", b"x", follow_symlinks=False))`},
	{name: "fsetxattr by a read-only descriptor", code: `verdict = attempt(os.setxattr, os.open(OUT + "/file", os.O_RDONLY), "user.canary", b"x")`},
	{name: "setxattrat", code: `
value = ctypes.create_string_buffer(b"x")
verdict = attempt(raw, 463, -100, (OUT + "/file").encode(), 0, b"user.canary", struct.pack("QII", ctypes.addressof(value), 1, 0), 16)`, refused: orUnknown},
	{name: "an access list", code: `
entry = lambda tag, perm, who=0xffffffff: struct.pack("<HHI", tag, perm, who)
acl = struct.pack("<I", 2) + entry(1, 6) + entry(4, 6) + entry(32, 6)
verdict = attempt(os.setxattr, OUT + "/file", "system.posix_acl_access", acl)`},
	{name: "file_setattr", code: `verdict = attempt(raw, 469, -100, (OUT + "/file").encode(), struct.pack("QIIII", 0x40, 0, 0, 0, 0), 24, 0)`, refused: orUnknown},
}

// orUnknown are the refusals of a call that a profile, or this Linux, may not know.
var orUnknown = []string{"ENOSYS", "EROFS", "EACCES", "EPERM"}
