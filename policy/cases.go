package policy

// CaseFile is a file of cases: what a policy is to decide, and what Linux is to make
// of it.
type CaseFile struct {
	File   string
	Policy string // a built-in policy's name, or a file beside this one
	Line   int    // of Policy
	// Modes are those in which cases run whose expectation names none.
	Modes []Mode
	// Files are there before each case.
	Files []CaseSetup
	Cases []Case
}

// CaseSetup is a file or directory that a case finds. Path begins with / or with
// ${session}, ${home} or ${tmp}.
type CaseSetup struct {
	Path string
	Dir  bool   // the path was written with a trailing /
	Text string // of a file
	Exec bool   // a file that can be executed; without a text it does nothing
	Line int
}

// Case is one operation or one cell, and what is expected of it.
type Case struct {
	Name string
	// Op are the operation's word and its arguments; empty for a cell.
	Op   []string
	Cell string // Python
	// Expect says what is to come of it, for each mode in which it runs.
	Expect map[Mode]Effect
	Rule   string // id of the rule that is to decide; empty for any
	Errno  string // in which a refusal is to end, such as EACCES; empty for any
	// Of a host call.
	Role, Purpose string
	Line          int
}

// Order lists the modes of the case, the mildest first.
func (c Case) Order() []Mode {
	var out []Mode
	for _, m := range Available() {
		if _, ok := c.Expect[m]; ok {
			out = append(out, m)
		}
	}
	return out
}

// CaseOps are the words of operations that a case may name, with what they take.
var CaseOps = []struct{ Word, Arguments string }{
	{"read", "PATH"}, {"write", "PATH"}, {"create", "PATH"}, {"truncate", "PATH"}, {"mkdir", "PATH"}, {"remove", "PATH"}, {"rmdir", "PATH"},
	{"rename", "OLD NEW"}, {"link", "OLD NEW"}, {"symlink", "PATH"}, {"chmod", "PATH"}, {"chown", "PATH"}, {"utime", "PATH"}, {"xattr", "PATH"}, {"socket", "PATH"},
	{"exec", "PATH"}, {"load", "PATH"}, {"connect", "ADDRESS:PORT"}, {"bind", "PORT"}, {"tool", "NAME [ARGUMENTS]"},
}
