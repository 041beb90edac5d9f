package policy

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// TestNames holds what is read by hand against the patterns that it stands for.
func TestNames(t *testing.T) {
	label := `[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?`
	for _, c := range []struct {
		name    string
		reads   func(string) bool
		pattern string
	}{
		{"id", isID, `^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`},
		{"host name", isHostName, `^` + label + `(\.` + label + `)*$`},
		{"errno", isErrno, `^E[A-Z0-9]{1,15}$`},
	} {
		pattern := regexp.MustCompile(c.pattern)
		yes := 0
		try := func(s string) {
			want := pattern.MatchString(s)
			if want {
				yes++
			}
			if got := c.reads(s); got != want {
				t.Errorf("%s %q: %v, want %v", c.name, s, got, want)
			}
		}
		for n := range 70 {
			for _, s := range []string{"a", "-", "_", ".", "E", "EA", "a-", "A", "é", "\n", "ſ", "\u212a"} {
				try(strings.Repeat(s, n))
				try("a" + strings.Repeat(s, n) + "a")
				try("E" + strings.Repeat(s, n))
			}
		}
		const letters = "aaz09_-.EAZ\n\x00é "
		random := rand.New(rand.NewPCG(1, 2))
		for range 20000 {
			b := make([]byte, random.IntN(12))
			for i := range b {
				b[i] = letters[random.IntN(len(letters))]
			}
			try(string(b))
		}
		if yes < 50 {
			t.Errorf("%s: only %d names were right: the test is too weak", c.name, yes)
		}
	}
}
