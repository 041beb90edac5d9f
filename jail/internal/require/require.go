// Package require lets a test skip for want of a host's feature, and makes
// that skip a failure where the host is said to have the feature:
//
//	JAIL_TEST_REQUIRE=userns,landlock,cgroup go test ./...
//
// The names are those of jail.Feature. "all" requires every one.
package require

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Variable is the environment variable that lists the required features.
const Variable = "JAIL_TEST_REQUIRE"

// Skip skips the test because the host lacks the feature, as a probe found and
// why says. The test fails instead when the feature is required.
func Skip(t testing.TB, feature, why string) {
	t.Helper()
	if Required(feature) {
		t.Fatalf("%s is required by %s and missing: %s", feature, Variable, why)
	}
	t.Skipf("needs %s: %s", feature, why)
}

// Required reports whether the environment requires the feature. Requiring
// "cgroup" requires its parts ("cgroup-memory", …) too.
func Required(feature string) bool {
	names := strings.Split(os.Getenv(Variable), ",")
	if slices.Contains(names, "all") || slices.Contains(names, feature) {
		return true
	}
	whole, _, part := strings.Cut(feature, "-")
	return part && slices.Contains(names, whole)
}
