package jail

import (
	"errors"
	"fmt"
	"strings"

	"cellblock/jail/plan"
)

// SpecError says what in a spec cannot be done, on any host.
type SpecError struct {
	// Field and Value name the part of the spec.
	Field, Value string
	// Why says what is wrong and what to do.
	Why string
}

func (e *SpecError) Error() string { return fmt.Sprintf("jail %s %s: %s", e.Field, e.Value, e.Why) }

// MissingFeatureError says that this host cannot do what the spec needs.
type MissingFeatureError struct {
	Feature Feature
	// Why is what was found, Remedy what a person can do.
	Why, Remedy string
}

func (e *MissingFeatureError) Error() string {
	text := fmt.Sprintf("jail feature %s: missing: %s", e.Feature, e.Why)
	if e.Remedy != "" {
		text += "; " + e.Remedy
	}
	return text
}

// StepError says which step ended the start. No foreign code has run.
type StepError struct {
	Step plan.Step
	Err  error
}

func (e *StepError) Error() string {
	return fmt.Sprintf("jail step %s: %v", e.Step.Title(), e.Err)
}

func (e *StepError) Unwrap() error { return e.Err }

// WitnessError says that a forbidden act was not refused as the plan demands,
// or that the report about it was not whole. No foreign code has run.
type WitnessError struct {
	Check plan.Check
	// Got is what the act came to, "" when it is not in the report.
	Got string
}

func (e *WitnessError) Error() string {
	got := e.Got
	if got == "" {
		got = "no report"
	}
	return fmt.Sprintf("jail witness %s: %s, want %s: the start was ended before any code ran; this is a bug or a changed host, please report it",
		e.Check.Name, got, strings.Join(e.Check.Want, " or "))
}

// ErrStageGone is returned when the stage ended without a word during the
// start: killed from outside, or by the memory limit of the jail.
var ErrStageGone = errors.New("jail stage: ended during the start: killed from outside, or its memory limit is too small")
