package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// Report is what one run found out.
type Report struct {
	Linux      string `json:"linux"`
	Processors int    `json:"processors"`
	Python     string `json:"python"`
	UID        int    `json:"uid"`
	Rows       []Row  `json:"rows"`
}

// Row is one kind of work, done in several ways in turn.
type Row struct {
	Name  string `json:"name"`
	Work  string `json:"work"`
	Unit  string `json:"unit"`
	Ways  []Way  `json:"ways"`
	Goals []Goal `json:"goals,omitempty"`
}

// Way is one way to do a row's work. Median and P99 are in the row's unit.
type Way struct {
	Name   string  `json:"name"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	// Samples is how often it was measured, after a warm-up.
	Samples int `json:"samples"`
	// Missing says why there are none.
	Missing string `json:"missing,omitempty"`
}

// Goal compares two figures of a row.
type Goal struct {
	// Text names both, such as "report / bubblewrap ≤ 1.15".
	Text string `json:"text"`
	// Value is what was found; Limit is what it is to be at most, or with AtLeast
	// at least.
	Value   float64 `json:"value"`
	Limit   float64 `json:"limit"`
	AtLeast bool    `json:"atLeast,omitempty"`
	Met     bool    `json:"met"`
	// Missing says why nothing was compared.
	Missing string `json:"missing,omitempty"`
}

// wayOf condenses measurements.
func wayOf(name string, samples []float64) Way {
	w := Way{Name: name, Samples: len(samples)}
	if len(samples) == 0 {
		return w
	}
	slices.Sort(samples)
	w.Median, w.P99 = quantile(samples, 0.5), quantile(samples, 0.99)
	return w
}

// quantile is the value below which a part of the sorted samples lies.
func quantile(sorted []float64, part float64) float64 {
	at := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[max(at, 0)]
}

func (r *Row) way(name string) (Way, string) {
	for _, w := range r.Ways {
		switch {
		case w.Name != name:
		case w.Missing != "":
			return w, name + ": " + w.Missing
		default:
			return w, ""
		}
	}
	return Way{}, name + ": not measured"
}

// note adds figures that were found beside those of a way, but for the first warm ones.
func (r *Row) note(name string, samples []float64, warm int) {
	if len(samples) > warm {
		r.Ways = append(r.Ways, wayOf(name, samples[warm:]))
	}
}

// ratio sets the goal that one way takes at most, or at least, limit times another.
func (r *Row) ratio(ours, theirs string, limit float64, atLeast bool) {
	sign := "≤"
	if atLeast {
		sign = "≥"
	}
	g := Goal{Text: fmt.Sprintf("%s / %s %s %g", ours, theirs, sign, limit), Limit: limit, AtLeast: atLeast}
	r.compare(g, ours, theirs, func(a, b Way) float64 { return a.Median / b.Median })
}

// added sets the goal that one way takes at most limit more than another.
func (r *Row) added(ours, theirs string, limit float64) {
	g := Goal{Text: fmt.Sprintf("%s - %s ≤ %g %s", ours, theirs, limit, r.Unit), Limit: limit}
	r.compare(g, ours, theirs, func(a, b Way) float64 { return a.Median - b.Median })
}

// worst sets the goal that of 100 times one way takes in 99 at most limit times
// what another usually takes.
func (r *Row) worst(ours, theirs string, limit float64) {
	g := Goal{Text: fmt.Sprintf("p99 of %s / %s ≤ %g", ours, theirs, limit), Limit: limit}
	r.compare(g, ours, theirs, func(a, b Way) float64 { return a.P99 / b.Median })
}

// below sets the goal that one way takes at most limit.
func (r *Row) below(ours string, limit float64) {
	g := Goal{Text: fmt.Sprintf("%s ≤ %g %s", ours, limit, r.Unit), Limit: limit}
	r.compare(g, ours, ours, func(a, _ Way) float64 { return a.Median })
}

func (r *Row) compare(g Goal, ours, theirs string, value func(a, b Way) float64) {
	a, why := r.way(ours)
	b, whyOther := r.way(theirs)
	if why == "" {
		why = whyOther
	}
	if g.Missing = why; why == "" {
		g.Value = value(a, b)
		g.Met = g.Value <= g.Limit
		if g.AtLeast {
			g.Met = g.Value >= g.Limit
		}
	}
	r.Goals = append(r.Goals, g)
}

// Print writes the report as a table for people.
func (r Report) Print(out io.Writer) {
	fmt.Fprintf(out, "Linux %s, %d processors, uid %d, %s\n", r.Linux, r.Processors, r.UID, r.Python)
	for _, row := range r.Rows {
		fmt.Fprintf(out, "\n%s: %s (%s)\n", row.Name, row.Work, row.Unit)
		fmt.Fprintf(out, "  %-34s %10s %10s %8s\n", "way", "median", "p99", "samples")
		for _, w := range row.Ways {
			if w.Missing != "" {
				fmt.Fprintf(out, "  %-34s %s\n", w.Name, "- "+w.Missing)
				continue
			}
			fmt.Fprintf(out, "  %-34s %10s %10s %8d\n", w.Name, figure(w.Median), figure(w.P99), w.Samples)
		}
		for _, g := range row.Goals {
			switch {
			case g.Missing != "":
				fmt.Fprintf(out, "  goal %s: not compared (%s)\n", g.Text, g.Missing)
			case g.Met:
				fmt.Fprintf(out, "  goal %s: %s, met\n", g.Text, figure(g.Value))
			default:
				fmt.Fprintf(out, "  goal %s: %s, missed\n", g.Text, figure(g.Value))
			}
		}
	}
}

// figure prints three digits that count.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
