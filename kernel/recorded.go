package kernel

import (
	"fmt"

	"cellblock/policy"
	"cellblock/policy/audit"
)

// RecordedPolicy returns the policy that the document of these options gives for a
// session that was recorded: with the record's directory, home and state instead of
// the caller's. The directory need not exist any more. What else the document names
// is looked for on this host, as it is now.
func RecordedPolicy(opts Options, run audit.Run) (policy.Policy, []policy.Note, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return policy.Policy{}, nil, err
	}
	if run.Directory == "" {
		return policy.Policy{}, nil, fmt.Errorf("session %q: its record names no directory", run.Session)
	}
	if opts.SkillRoots == nil {
		opts.SkillRoots = skillRoots(run.Home)
	}
	opts.State = run.State
	doc, err := opts.document()
	if err != nil {
		return policy.Policy{}, nil, err
	}
	facts, err := policyFacts(opts, doc, run.Directory, run.Home)
	if err != nil {
		return policy.Policy{}, nil, err
	}
	if found := facts.Paths[run.Directory]; !found.Exists {
		facts.Paths[run.Directory] = policy.Found{Exists: true, Dir: true, Path: run.Directory}
	}
	return policy.Compile(doc, facts)
}
