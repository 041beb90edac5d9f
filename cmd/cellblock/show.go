package main

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"cellblock/kernel"
	"cellblock/policy"
)

// live prints what a cell writes while it runs, and what its result adds.
type live struct {
	c    *console
	mu   sync.Mutex
	open bool // the last line has no line feed yet
}

func newLive(c *console) *live { return &live{c: c} }

// output is the Call.Output of a cell.
func (l *live) output(stream, text string) {
	if text == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if stream == "stderr" {
		l.c.printErr(text)
	} else {
		l.c.printOut(text)
	}
	l.open = !strings.HasSuffix(text, "\n")
}

// finish prints what the result adds to the output: the value, the size of
// each image, the traceback, what the policy says.
func (l *live) finish(r kernel.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, d := l.c, r.Details
	if l.open {
		// A value must not look like the end of a printed line.
		c.printOut("\n")
	}
	for _, o := range d.Outputs {
		if o.Background {
			c.say("background output of %s: %s", orElse(o.Origin, "an earlier cell"), strings.TrimRight(o.Text, "\n"))
		}
	}
	switch {
	case d.Value != nil:
		c.printOut(*d.Value + "\n")
	case d.ShapeHint != "":
		c.printOut(d.ShapeHint + "\n")
	}
	for _, part := range r.Content {
		if part.Type == "image" {
			c.printOut(imageLine(part) + "\n")
		}
	}
	l.text(r)
	if d.Error != nil {
		l.failure(d.Error)
	}
	if d.StateLost && d.Error == nil {
		c.say("the worker before this one died; what earlier cells had set is lost")
	}
	if d.Restored != nil {
		c.say("%s", strings.Trim(d.Restored.String(), "[]"))
	}
	for _, v := range d.Policy.Violations {
		c.say("policy: %s", violationLine(v))
	}
	for _, name := range slices.Sorted(maps.Keys(d.SkErrors)) {
		c.say("skill %s: %s", name, d.SkErrors[name])
	}
	for _, a := range d.Artefacts {
		c.say("artefact: %s (%s, %d bytes)", a.Path, a.Change, a.Bytes)
	}
	for _, note := range d.Notes {
		c.say("note: %s", note)
	}
}

// text prints what a call without a cell (reset, reload) answers.
func (l *live) text(r kernel.Result) {
	if r.Details.ReloadSkills != nil {
		l.c.printOut(r.Text() + "\n")
	}
}

func (l *live) failure(e *kernel.ErrorDetail) {
	c := l.c
	switch e.Name {
	case kernel.KernelTimeout, kernel.KernelExited, kernel.KernelKilled, kernel.KernelRetired, kernel.ToolError:
		c.say("%s", strings.TrimRight(e.Value, "\n"))
		if e.Missing != nil && !strings.Contains(e.Value, e.Missing.Remedy) {
			c.say("remedy: %s", e.Missing.Remedy)
		}
	default:
		text := e.Traceback
		if text == "" {
			text = e.Name + ": " + e.Value
		}
		c.printErr(strings.TrimRight(text, "\n") + "\n")
	}
}

// violationLine is one line about an attempt outside the policy.
func violationLine(v kernel.Violation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s %s", v.Decision, named(v.Op), named(v.Path))
	if v.Count > 1 {
		fmt.Fprintf(&b, ", %d times", v.Count)
	}
	fmt.Fprintf(&b, " (%s", named(orElse(v.Reason, v.Rule)))
	if len(v.Nearest) > 0 {
		fmt.Fprintf(&b, "; %s %s", nearest(v.Op), strings.Join(v.Nearest, ", "))
	}
	b.WriteByte(')')
	if v.Note != "" {
		b.WriteString("; " + v.Note)
	}
	return b.String()
}

// nearest introduces the places where the same thing is allowed.
func nearest(op string) string {
	switch policy.NetKind(op) {
	case policy.Connect, policy.Lookup:
		return "reachable are"
	}
	return "allowed beneath"
}

// imageLine says what an image is, for an eye that cannot see it here.
func imageLine(part kernel.Content) string {
	data, err := base64.StdEncoding.DecodeString(part.Data)
	if err != nil {
		return fmt.Sprintf("[%s, not base64]", part.MimeType)
	}
	// PNG, 5.2 and 11.2.2: the signature, then IHDR with width and height.
	if len(data) >= 24 && string(data[:8]) == "\x89PNG\r\n\x1a\n" && string(data[12:16]) == "IHDR" {
		w, h := binary.BigEndian.Uint32(data[16:]), binary.BigEndian.Uint32(data[20:])
		return fmt.Sprintf("[%s, %d x %d pixels, %d bytes]", part.MimeType, w, h, len(data))
	}
	return fmt.Sprintf("[%s, %d bytes]", part.MimeType, len(data))
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
