package kernel

import (
	"context"
	"errors"
	"os"

	"cellblock/jail"
	"cellblock/jail/plan"
	"cellblock/kernel/extension"
)

// What DoctorReport.Jail says when nothing keeps a jail from being built.
const (
	JailWorks   = "works"
	JailUntried = "not tried: tier process has none"
)

// DoctorReport is what a host can enforce, as a jail that was built on it shows.
type DoctorReport struct {
	Features jail.Features `json:"features"`
	Jail     string        `json:"jail"`              // JailWorks, JailUntried, or why no jail can be built
	Missing  *Missing      `json:"missing,omitempty"` // what it lacks for that
	Tier     Tier          `json:"tier"`
	// Witness, Limits and Degraded are those of Info: what was tried, what keeps
	// each limit, and what is weaker than it should be.
	Witness  []Witness          `json:"witness,omitempty"`
	Limits   []plan.Limit       `json:"limits,omitempty"`
	Degraded []plan.Degradation `json:"degraded,omitempty"`
	Digests  Digests            `json:"digests"`
	Skills   []Skill            `json:"skills"`
	// Extensions are those that a session with these options loads; the warnings say
	// why some files are not used.
	Extensions        []extension.Extension `json:"extensions,omitempty"`
	ExtensionWarnings []extension.Warning   `json:"extensionWarnings,omitempty"`
}

// Doctor probes the host, starts a session with these options and ends it.
// Without a session directory it makes one for the purpose. Nothing is recorded.
// Why no session can be had is in the report; the error is that of its own
// directory, or an OptionError.
func Doctor(ctx context.Context, opts Options) (DoctorReport, error) {
	opts.Audit = ""
	report := DoctorReport{Features: jail.ProbeAll(), Jail: JailWorks, Skills: Skills(opts.SkillRoots)}
	if opts.Tier == TierProcess {
		report.Jail = JailUntried
	}
	if opts.SessionDir == "" {
		dir, err := os.MkdirTemp("", "cellblock-doctor-")
		if err != nil {
			return report, err
		}
		defer os.RemoveAll(dir)
		opts.SessionDir = dir
	}
	s, err := Open(opts)
	if errors.As(err, new(*OptionError)) {
		return report, err
	}
	if err == nil {
		defer s.Close()
		err = s.Start(ctx)
	}
	if err != nil {
		report.Jail, report.Missing = err.Error(), missingOf(err)
	}
	if s == nil {
		return report, nil
	}
	report.Extensions, report.ExtensionWarnings = s.Extensions(ctx)
	i := s.Info()
	report.Tier, report.Witness, report.Limits, report.Degraded, report.Digests = i.Tier, i.Witness, i.Limits, i.Degraded, i.Digests
	return report, nil
}

// missingOf is the feature that an error is about; nil for another error.
func missingOf(err error) *Missing {
	var missing *jail.MissingFeatureError
	if !errors.As(err, &missing) {
		return nil
	}
	return &Missing{Feature: string(missing.Feature), Why: missing.Why, Remedy: missing.Remedy}
}
