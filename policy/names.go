package policy

import "strings"

// These are read by hand: regular expressions are compiled at every start of every
// program that links this package, and took it longer than all its other variables.

// isWord reports whether s has 1 to most characters, all of them small letters, digits
// or in others, and those of inner at neither end.
func isWord(s string, most int, others, inner string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', strings.IndexByte(others, c) >= 0:
		case strings.IndexByte(inner, c) >= 0 && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return len(s) > 0 && len(s) <= most
}

// isID reports whether s can be the id of a rule.
func isID(s string) bool { return isWord(s, 64, "", "._-") }

// isHostName reports whether s is a host name as DNS has it, in ASCII: labels of up to
// 63 small letters, digits, dashes and (in practice) underscores.
func isHostName(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !isWord(label, 63, "_", "-") {
			return false
		}
	}
	return true
}

// isErrno reports whether s looks like the name of an error of Linux, such as EROFS.
func isErrno(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return len(s) >= 2 && len(s) <= 16 && s[0] == 'E'
}
