package trial

import (
	"fmt"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"cellblock/policy"
)

// errnoName is the name of an error number that is written in decimal.
func errnoName(number string) string {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > 4095 {
		return ""
	}
	return unix.ErrnoName(syscall.Errno(n))
}

// RuleIDs lists the rules of a document by their ids, in its order.
func RuleIDs(doc policy.Document) []string {
	var out []string
	add := func(id, made string, i int) {
		if id == "" {
			id = fmt.Sprintf("%s.%d", made, i+1)
		}
		out = append(out, id)
	}
	for i, r := range doc.FS.Rules {
		add(r.ID, "fs", i)
	}
	for i, r := range doc.Net.Allow {
		add(r.ID, "net", i)
	}
	for i, r := range doc.Tools.Rules {
		add(r.ID, "tools", i)
	}
	if doc.Tools.Rego != nil {
		out = append(out, "tools.rego")
	}
	return out
}

// coverage says for each policy which of its rules decided no case of any suite.
func (r *runner) coverage(suites []Suite) []Coverage {
	var out []Coverage
	at := map[string]int{}
	for i := range suites {
		s := &suites[i]
		if _, known := at[s.Policy.File]; known {
			continue
		}
		at[s.Policy.File] = len(out)
		used := map[string]bool{}
		for j := range suites {
			if suites[j].Policy.File == s.Policy.File {
				for id := range r.used[&suites[j]] {
					used[id] = true
				}
			}
		}
		c := Coverage{Policy: s.Policy.File, Unused: []string{}}
		for _, id := range RuleIDs(s.Policy) {
			c.Rules++
			if !used[id] {
				c.Unused = append(c.Unused, id)
			}
		}
		out = append(out, c)
	}
	return out
}
