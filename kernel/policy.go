package kernel

import (
	"os"
	"path/filepath"
	"sync"

	"cellblock/policy"
	"cellblock/profiles"
)

// BuiltInPolicy reads the policy of that name that comes with the product. The lists in
// it are everybody's: who changes one copies it first.
func BuiltInPolicy(name string) (policy.Document, error) {
	if known, ok := builtInPolicies.Load(name); ok {
		return known.(policy.Document), nil
	}
	text, err := profiles.Policy(name)
	if err != nil {
		return policy.Document{}, err
	}
	doc, err := policy.Parse(name+".yaml", text)
	if err == nil {
		builtInPolicies.Store(name, doc)
	}
	return doc, err
}

// builtInPolicies are those that a session has asked for: reading one takes longer than
// all else that opens a session.
var builtInPolicies sync.Map // name → policy.Document

// Policy returns the policy of a session with these options, as it would be
// opened here, and what is worth telling of it. Nothing is started or made.
func Policy(opts Options) (policy.Policy, []policy.Note, error) {
	s, err := newSession(opts)
	if err != nil {
		return policy.Policy{}, nil, err
	}
	return s.policy, s.notes, nil
}

// compilePolicy gathers the facts and compiles. The options have their defaults,
// and dir and home are known.
func compilePolicy(opts Options, dir, home string) (policy.Policy, []policy.Note, error) {
	doc, err := opts.document()
	if err != nil {
		return policy.Policy{}, nil, err
	}
	facts, err := policyFacts(opts, doc, dir, home)
	if err != nil {
		return policy.Policy{}, nil, err
	}
	return policy.Compile(doc, facts)
}

// home is the operator's; empty for none.
func (o Options) home() string {
	if o.Home != "" {
		return o.Home
	}
	home, _ := os.UserHomeDir()
	return home
}

// document is the policy that the options name.
func (o Options) document() (policy.Document, error) {
	if o.Policy != nil {
		return *o.Policy, nil
	}
	if _, err := profiles.Get(o.Profile); err != nil {
		return policy.Document{}, err
	}
	return BuiltInPolicy(o.Profile)
}

// policyFacts looks at the host for what the document names.
func policyFacts(opts Options, doc policy.Document, dir, home string) (policy.Facts, error) {
	facts := policy.Facts{Mode: opts.Mode, SessionDir: dir, Home: home, State: opts.State, Extensions: hiddenExtensions(opts, dir, home), Net: opts.Net, Limits: opts.Limits,
		Unjailed: opts.Tier == TierProcess}
	if opts.Tier == TierJail {
		facts.Sealed = opts.sealedFiles(ownNetwork(opts, doc))
		for _, root := range opts.SkillRoots {
			if real, err := filepath.EvalSymlinks(root); err == nil {
				const reason = "skills are shown read-only"
				facts.Sealed = append(facts.Sealed, policy.Rule{ID: "ground.skills", Path: real, Access: policy.AccessWrite, Enforced: true, Reason: reason})
				facts.Needs = append(facts.Needs, policy.Rule{ID: "ground.skills", Path: real, Access: policy.AccessRead, Reason: reason})
			}
		}
	}
	facts.Paths = map[string]policy.Found{}
	host := hostTree{}
	for _, p := range doc.Paths(facts) {
		facts.Paths[p] = host.lookup(p)
	}
	if doc.Lists() && opts.Tier == TierJail {
		bare, _, err := policy.Compile(doc, facts) // for what sessions may change
		if err != nil {
			return facts, err
		}
		python, err := interpreter(opts.PythonBin, placesOf(bare, opts.Tier, dir))
		if err != nil {
			return facts, err
		}
		needs, links := interpreterNeeds(python)
		facts.Needs, facts.Links = append(facts.Needs, needs...), links
		facts.Top = topLinks()
	}
	return facts, nil
}

// ownNetwork says whether a session will have a network of its own; see
// policy.Network.Enforced.
func ownNetwork(opts Options, doc policy.Document) bool {
	mode := doc.Net.Mode
	if opts.Net != "" {
		mode = opts.Net
	}
	return mode != policy.NetHost && (opts.Mode.Enforced() || opts.Net == policy.NetNone)
}
