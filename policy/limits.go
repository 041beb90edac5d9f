package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Limits bound what a session may use. Zero means no limit.
type Limits struct {
	MemoryBytes   int64 `json:"memoryBytes,omitempty"`   // of all its processes together
	Tasks         int64 `json:"tasks,omitempty"`         // processes and threads
	OpenFiles     int64 `json:"openFiles,omitempty"`     // a process
	FileSizeBytes int64 `json:"fileSizeBytes,omitempty"` // one file
	CPUSeconds    int64 `json:"cpuSeconds,omitempty"`    // a process
	TmpBytes      int64 `json:"tmpBytes,omitempty"`      // private /tmp
	ShadowBytes   int64 `json:"shadowBytes,omitempty"`   // private layer of mode shadow
	OutputBytes   int64 `json:"outputBytes,omitempty"`   // full-output files of one generation
	WallSeconds   int64 `json:"wallSeconds,omitempty"`   // one cell, whatever the option says
}

// limitTable says what each name in documents and options stands for.
var limitTable = []struct {
	name  string
	field func(*Limits) *int64
	parse func(string) (int64, error)
	unit  string // of the number
}{
	{"memory", func(l *Limits) *int64 { return &l.MemoryBytes }, parseSize, "bytes of all processes together"},
	{"tasks", func(l *Limits) *int64 { return &l.Tasks }, parseCount, "processes and threads"},
	{"open-files", func(l *Limits) *int64 { return &l.OpenFiles }, parseCount, "of a process"},
	{"file-size", func(l *Limits) *int64 { return &l.FileSizeBytes }, parseSize, "bytes of one file"},
	{"cpu", func(l *Limits) *int64 { return &l.CPUSeconds }, parseSeconds, "seconds of processor time of a process"},
	{"tmp", func(l *Limits) *int64 { return &l.TmpBytes }, parseSize, "bytes of private /tmp"},
	{"shadow", func(l *Limits) *int64 { return &l.ShadowBytes }, parseSize, "bytes of the private layer"},
	{"output", func(l *Limits) *int64 { return &l.OutputBytes }, parseSize, "bytes of the full-output files of one generation"},
	{"wall", func(l *Limits) *int64 { return &l.WallSeconds }, parseSeconds, "seconds of one cell"},
}

// LimitNames lists the names of limits, in the order of the documentation.
func LimitNames() []string {
	names := make([]string, len(limitTable))
	for i, l := range limitTable {
		names[i] = l.name
	}
	return names
}

// ParseLimit reads the value of the limit of that name: a size such as 256MiB, a
// count, or whole seconds such as 30s.
func ParseLimit(name, text string) (int64, error) {
	for _, l := range limitTable {
		if l.name == name {
			return l.parse(strings.TrimSpace(text))
		}
	}
	return 0, fmt.Errorf("there is no limit %q; choose from %s", name, strings.Join(LimitNames(), ", "))
}

// Field is the limit of that name; nil where there is none.
func (l *Limits) Field(name string) *int64 {
	for _, t := range limitTable {
		if t.name == name {
			return t.field(l)
		}
	}
	return nil
}

// Merge returns l with every limit that o sets put in place.
func (l Limits) Merge(o Limits) Limits {
	for _, t := range limitTable {
		if v := *t.field(&o); v != 0 {
			*t.field(&l) = v
		}
	}
	return l
}

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

// limitText is a value as a person writes it.
func limitText(name string, v int64) string {
	switch name {
	case "cpu", "wall":
		return fmt.Sprintf("%ds", v)
	case "tasks", "open-files":
		return fmt.Sprint(v)
	}
	for _, u := range []string{"TiB", "GiB", "MiB", "KiB"} {
		for _, known := range sizeUnits {
			if known.suffix == u && v%known.bytes == 0 {
				return fmt.Sprintf("%d%s", v/known.bytes, u)
			}
		}
	}
	return fmt.Sprintf("%dB", v)
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
