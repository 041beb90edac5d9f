package kernel

import (
	"errors"
	"slices"
	"sort"

	"cellblock/jail"
	"cellblock/policy"
)

// CheckPolicy looks for what is wrong with the policy of these options, and for
// what a host with these features cannot keep of it. The mode is of no matter.
func CheckPolicy(opts Options, host jail.Features) ([]policy.Finding, error) {
	opts.Mode, opts.Tier = policy.Enforce, TierJail
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	dir, err := sessionDirectory(opts.SessionDir, opts.State)
	if err != nil {
		return nil, err
	}
	home := opts.home()
	doc, err := opts.document()
	if err != nil {
		return nil, err
	}
	facts, err := policyFacts(opts, doc, dir, home)
	if err != nil {
		return nil, err
	}
	found := policy.Lint(doc, facts)
	if !slices.ContainsFunc(found, func(f policy.Finding) bool { return f.Level == policy.LevelError }) {
		found = append(found, keepable(doc, opts, host)...)
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].Line < found[j].Line })
	return found, nil
}

// keepable tells what no mechanism of the host keeps, or a weaker one.
func keepable(doc policy.Document, opts Options, host jail.Features) []policy.Finding {
	var found []policy.Finding
	add := func(line int, level policy.Level, rule, text string) {
		found = append(found, policy.Finding{Line: max(line, 1), Level: level, Rule: rule, Text: text})
	}
	if host.Lacks(jail.Landlock) || host.LandlockABI == 0 {
		const text = "nothing here can enforce it: Landlock alone tells it apart, and there is none"
		for _, r := range doc.FS.Rules {
			part := r.Access & policy.AccessWrite
			if r.Effect == policy.Allow && part != 0 && part != policy.AccessWrite {
				add(r.Line, policy.LevelError, r.ID, "allows "+part.String()+" alone; "+text)
			}
		}
		if d := doc.FS.Defaults.Exec; d != nil && d.Effect == policy.Deny {
			add(d.Line, policy.LevelError, "fs.defaults.exec", "programs from a list; "+text)
		}
	}
	for i, why := range directFor(policy.Network{Mode: doc.Net.Mode, Allow: doc.Net.Allow}).left {
		add(doc.Net.Allow[i].Line, policy.LevelNote, doc.Net.Allow[i].ID, "only programs that use the proxy reach all of it: "+why)
	}
	opts.Policy = &doc
	plan, err := PlanFor(opts, host)
	var missing *jail.MissingFeatureError
	switch {
	case errors.As(err, &missing):
		if missing.Feature != jail.Landlock || len(found) == 0 {
			add(1, policy.LevelError, "", "nothing here can enforce it: "+missing.Error())
		}
	case err != nil:
		add(1, policy.LevelError, "", err.Error())
	default:
		for _, d := range plan.Degraded {
			add(limitLine(doc, d.Feature), policy.LevelWarning, "", d.Feature+": "+d.Why)
		}
	}
	return found
}

// limitLine is the line of the limit that a feature keeps.
func limitLine(doc policy.Document, feature string) int {
	for f, name := range map[jail.Feature]string{jail.CgroupMemory: "memory", jail.CgroupTasks: "tasks"} {
		if string(f) == feature {
			return max(doc.Limits[name].Line, doc.Process[name].Line)
		}
	}
	return 1
}

// Canonical is the form in which a policy knows a path: absolute, and without a
// symbolic link in what exists of it.
func Canonical(path string) string { return lookup(path).Path }

// Lookup says what this host has at an absolute path, as policies are compiled with.
func Lookup(path string) policy.Found { return lookup(path) }
