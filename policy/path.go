package policy

import (
	"path"
	"strings"
)

// Within reports whether p is root itself or lies beneath it, comparing whole
// components: /work-evil is not within /work. Both are cleaned first, and both
// must be absolute; everything absolute is within "/".
func Within(root, p string) bool {
	if !strings.HasPrefix(root, "/") || !strings.HasPrefix(p, "/") {
		return false
	}
	return contains(cleaned(root), cleaned(p))
}

// contains is Within of canonical paths, as those of a compiled policy's rules are: many
// of them are compared for each operation.
func contains(root, p string) bool {
	n := len(root)
	return n > 0 && strings.HasPrefix(p, root) && (len(p) == n || p[n] == '/' || n == 1)
}

// strictlyBeneath is Within of canonical paths that differ.
func strictlyBeneath(root, p string) bool {
	return p != root && contains(root, p)
}

// cleaned is path.Clean of an absolute path, quicker for one that is clean already, as
// nearly all are.
func cleaned(p string) string {
	if !strings.Contains(p, "//") && !strings.Contains(p, "/.") && (p == "/" || !strings.HasSuffix(p, "/")) && p != "" {
		return p
	}
	return path.Clean(p)
}

// Overlap reports whether one of two absolute paths contains the other.
func Overlap(a, b string) bool { return Within(a, b) || Within(b, a) }

// depth counts the components of a canonical path; a deeper rule is a more special one.
func depth(p string) int {
	if p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}
