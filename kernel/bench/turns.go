package bench

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// entry is one way of a row that is about to be measured. once does the work once
// and returns what is measured, in the row's unit.
type entry struct {
	name string
	once func(ctx context.Context) (float64, error)
	end  func()
	// missing says why there is nothing to measure.
	missing string
}

// longest bounds one measurement, so that a way that hangs ends.
const longest = 2 * time.Minute

// turns measures all ways in turn: warm rounds that do not count, then rounds. A way
// that fails once is given up, with its reason.
func turns(ctx context.Context, warm, rounds int, ways []entry) ([]Way, error) {
	samples := make([][]float64, len(ways))
	for round := range warm + rounds {
		for i := range ways {
			w := &ways[i]
			if w.missing != "" {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			limited, cancel := context.WithTimeout(ctx, longest)
			value, err := w.once(limited)
			cancel()
			if err != nil {
				w.missing = strings.Join(strings.Fields(err.Error()), " ")
				continue
			}
			if round >= warm {
				samples[i] = append(samples[i], value)
			}
		}
	}
	out := make([]Way, len(ways))
	for i, w := range ways {
		if w.missing == "" && len(samples[i]) == 0 {
			w.missing = "not measured"
		}
		out[i] = wayOf(w.name, samples[i])
		if w.missing != "" {
			out[i] = Way{Name: w.name, Missing: w.missing}
		}
		if w.end != nil {
			w.end()
		}
	}
	return out, nil
}

// absent is a way that cannot be had.
func absent(name, format string, args ...any) entry {
	return entry{name: name, missing: fmt.Sprintf(format, args...)}
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
