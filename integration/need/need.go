// Package need says what a test needs of its host, and what becomes of the test
// where the host has not got it: it is skipped, with the reason, or fails where
// JAIL_TEST_REQUIRE says that the host has it.
package need

import (
	"os"
	"strings"
	"testing"

	"cellblock/jail"
)

// Variable is the environment variable that lists, with commas between them, what a
// host is said to have; all stands for everything.
const Variable = "JAIL_TEST_REQUIRE"

// Required reports whether the host is said to have something of this name.
func Required(name string) bool {
	for word := range strings.SplitSeq(os.Getenv(Variable), ",") {
		if w := strings.TrimSpace(word); w == name || w == "all" {
			return true
		}
	}
	return false
}

// Absent ends the test for want of something.
func Absent(t testing.TB, name, why string) {
	t.Helper()
	if Required(name) {
		t.Fatalf("%s is absent, and %s asks for it: %s", name, Variable, why)
	}
	t.Skipf("%s is absent: %s", name, why)
}

// Features ends the test where the host lacks one of the jail's features.
func Features(t testing.TB, features ...jail.Feature) {
	t.Helper()
	host := jail.ProbeAll()
	for _, f := range features {
		if found := host.Get(f); !found.Yes() {
			Absent(t, string(f), found.Why)
		}
	}
}
