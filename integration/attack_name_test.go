package integration

// nameAttacks write beneath OUT, or beside the session directory, under names that
// a comparison of paths may get wrong.
var nameAttacks = []attack{
	{name: "a name with a newline", code: `verdict = attempt(open, OUT + "/new\n{\"seq\":1}", "w")`},
	{name: "a name that is not UTF-8", code: `verdict = attempt(open, OUT.encode() + b"/\xff\xfe", "w")`},
	{name: "a name that spells such bytes", code: `verdict = attempt(open, OUT + "/\\xff\\xfe", "w")`},
	{name: "a name with terminal sequences", code: `verdict = attempt(open, OUT + "/\x1b]0;owned\x07\x1b[2K", "w")`},
	{name: "a name that reads backwards", code: `verdict = attempt(open, OUT + "/\u202egpj.exe", "w")`},
	{name: "a name of 255 bytes", code: `verdict = attempt(open, OUT + "/" + "n" * 255, "w")`},
	{name: "a path of 4095 bytes", code: `verdict = attempt(open, OUT + "/." * ((4095 - len(OUT) - 5) // 2) + "/file", "w")`},
	{name: "a path of slashes", code: `verdict = attempt(open, OUT.replace("/", "////") + "//./file", "w")`},
	{name: "through .. of the session directory", code: `verdict = attempt(open, os.getcwd() + "/" + os.path.relpath(OUT, os.getcwd()) + "/file", "w") if not os.getcwd().startswith("/tmp") else attempt(open, OUT + "/file", "w")`},
}
