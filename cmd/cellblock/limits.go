package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"cellblock/policy"
)

// limitFlag reads --limit name=value,…; it may be given more than once.
type limitFlag struct{ policy.Limits }

// limitNames says what each name of --limit stands for.
var limitNames = map[string]struct {
	field func(*policy.Limits) *int64
	parse func(string) (int64, error)
	unit  string
}{
	"memory":     {func(l *policy.Limits) *int64 { return &l.MemoryBytes }, parseSize, "all processes together"},
	"tasks":      {func(l *policy.Limits) *int64 { return &l.Tasks }, parseCount, "processes and threads"},
	"open-files": {func(l *policy.Limits) *int64 { return &l.OpenFiles }, parseCount, "a process"},
	"file-size":  {func(l *policy.Limits) *int64 { return &l.FileSizeBytes }, parseSize, "one file"},
	"cpu":        {func(l *policy.Limits) *int64 { return &l.CPUSeconds }, parseSeconds, "processor time of a process"},
	"tmp":        {func(l *policy.Limits) *int64 { return &l.TmpBytes }, parseSize, "private /tmp"},
	"output":     {func(l *policy.Limits) *int64 { return &l.OutputBytes }, parseSize, "full-output files on disk"},
}

// Set reads one value of the flag.
func (f *limitFlag) Set(text string) error {
	for _, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return fmt.Errorf("%q is not name=value", part)
		}
		limit, known := limitNames[name]
		if !known {
			return fmt.Errorf("there is no limit %q; choose from %s", name, strings.Join(slices.Sorted(maps.Keys(limitNames)), ", "))
		}
		n, err := limit.parse(value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*limit.field(&f.Limits) = n
	}
	return nil
}

// String prints the limits that were set.
func (f *limitFlag) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(limitNames)) {
		if n := *limitNames[name].field(&f.Limits); n != 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", name, n))
		}
	}
	return strings.Join(parts, ",")
}

// Type is shown in the help text.
func (f *limitFlag) Type() string { return "name=value,..." }

func parseCount(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a number from 1 up", text)
	}
	return n, nil
}

func parseSeconds(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return n, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d%time.Second != 0 {
		return 0, fmt.Errorf("%q is not whole seconds, such as 30s", text)
	}
	return int64(d / time.Second), nil
}

// sizeUnits are tried in this order, the longer endings first.
var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1},
}

func parseSize(text string) (int64, error) {
	digits, unit := text, int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a size, such as 256MiB", text)
	}
	return n * unit, nil
}
