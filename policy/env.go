package policy

import (
	"slices"
	"strings"
)

// Env says which variables of the host reach a worker. LD_* and PYTHON* make a
// program load foreign code: they pass when they are named in full only.
type Env struct {
	Pass []string `json:"pass,omitempty"` // names; a trailing * matches any rest
	Set  []string `json:"set,omitempty"`  // NAME=VALUE, put in as they are
}

// Merge adds what o names.
func (e Env) Merge(o Env) Env {
	return Env{Pass: slices.Concat(e.Pass, o.Pass), Set: slices.Concat(e.Set, o.Set)}
}

// dangerous prefixes need to be named in full before they pass.
var dangerous = []string{"LD_", "PYTHON", "GCONV_", "GLIBC_", "MALLOC_", "BASH_ENV", "ENV", "IFS"}

// risky reports whether a variable of that name makes programs load foreign code.
func risky(name string) bool {
	return slices.ContainsFunc(dangerous, func(d string) bool {
		return name == d || strings.HasSuffix(d, "_") && strings.HasPrefix(name, d) ||
			d == "PYTHON" && strings.HasPrefix(name, d)
	})
}

// Passes reports whether the host's variable of that name reaches the worker.
func (e Env) Passes(name string) bool {
	for _, p := range e.Pass {
		if p == name {
			return true
		}
		if rest, ok := strings.CutSuffix(p, "*"); ok && !risky(name) && strings.HasPrefix(name, rest) {
			return true
		}
	}
	return false
}

// Filter returns the variables of host (NAME=VALUE) that pass, in order.
func (e Env) Filter(host []string) []string {
	var out []string
	for _, kv := range host {
		name, _, ok := strings.Cut(kv, "=")
		if ok && name != "" && e.Passes(name) {
			out = append(out, kv)
		}
	}
	return out
}
