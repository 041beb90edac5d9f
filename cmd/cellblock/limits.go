package main

import (
	"fmt"
	"slices"
	"strings"

	"cellblock/policy"
)

// limitFlag reads --limit name=value,…; it may be given more than once.
type limitFlag struct{ policy.Limits }

// Set reads one value of the flag.
func (f *limitFlag) Set(text string) error {
	for _, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return fmt.Errorf("%q is not name=value", part)
		}
		if !slices.Contains(policy.LimitNames(), name) {
			return fmt.Errorf("there is no limit %q; choose from %s", name, strings.Join(policy.LimitNames(), ", "))
		}
		n, err := policy.ParseLimit(name, value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*f.Field(name) = n
	}
	return nil
}

// String prints the limits that were set.
func (f *limitFlag) String() string {
	var parts []string
	for _, name := range policy.LimitNames() {
		if n := *f.Field(name); n != 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", name, n))
		}
	}
	return strings.Join(parts, ",")
}

// Type is shown in the help text.
func (f *limitFlag) Type() string { return "name=value,..." }
