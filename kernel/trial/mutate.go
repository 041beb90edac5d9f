package trial

import (
	"context"
	"slices"

	"cellblock/kernel"
	"cellblock/policy"
)

// Mutations says which rules of a policy could be lost, and no case would fail.
type Mutations struct {
	Policy    string   `json:"policy"`
	Dropped   int      `json:"dropped"`
	Unnoticed []string `json:"unnoticed"` // ids, in the order of the document
}

// Mutate drops each rule in turn and looks for a case that fails then. Operations are
// asked of the policy alone: Run has held each against Linux with all rules. Cells are
// run again, where no operation notices.
func Mutate(ctx context.Context, suites []Suite, o Options) ([]Mutations, error) {
	var out []Mutations
	at := map[string]int{}
	for i := range suites {
		file := suites[i].Policy.File
		if _, known := at[file]; known {
			continue
		}
		at[file] = len(out)
		m := Mutations{Policy: file, Unnoticed: []string{}}
		var about []*Suite
		for j := range suites {
			if suites[j].Policy.File == file {
				about = append(about, &suites[j])
			}
		}
		for _, id := range RuleIDs(suites[i].Policy) {
			m.Dropped++
			less := without(suites[i].Policy, id)
			noticed, err := notices(ctx, about, less, o)
			if err != nil {
				return nil, err
			}
			if !noticed {
				m.Unnoticed = append(m.Unnoticed, id)
			}
		}
		out = append(out, m)
	}
	return out, nil
}

// notices reports whether some case of the suites fails under another policy.
func notices(ctx context.Context, suites []*Suite, less policy.Document, o Options) (bool, error) {
	var cells []Suite
	for _, s := range suites {
		found, err := operationNotices(s, less, o)
		if err != nil || found {
			return found, err
		}
		only := Suite{Cases: s.Cases, Policy: less}
		only.Cases.Cases = slices.DeleteFunc(slices.Clone(s.Cases.Cases), func(c policy.Case) bool { return c.Cell == "" })
		if len(only.Cases.Cases) > 0 {
			cells = append(cells, only)
		}
	}
	report, err := Run(ctx, cells, o)
	failed, broken := report.Count()
	return failed+broken > 0, err
}

func operationNotices(s *Suite, less policy.Document, o Options) (bool, error) {
	room, err := newRoom(s.Cases.Files)
	if err != nil {
		return false, err
	}
	defer room.remove()
	r := &runner{options: o, report: &Report{}}
	for _, mode := range policy.Available() {
		options := room.kernelOptions(o.Kernel, less, mode)
		var p policy.Policy
		compiled := false
		for _, c := range s.Cases.Cases {
			want, runs := c.Expect[mode]
			if !runs || c.Cell != "" || o.Select != nil && !o.Select(s.Cases.File, c.Name) {
				continue
			}
			if !compiled {
				if p, _, err = kernel.Policy(options); err != nil {
					return true, nil // no session can be opened, and every case fails
				}
				compiled = true
			}
			if c.Op[0] == "tool" {
				done := Result{Want: want}
				if err := r.tool(&Suite{Cases: s.Cases, Policy: less}, p, c, &done); err != nil {
					return false, err
				}
				if !done.Passed() {
					return true, nil
				}
				continue
			}
			d := newAct(c, room).decide(p)
			carried := d.Effect
			if mode == policy.Off && !d.Enforced {
				carried = policy.Allow
			}
			if carried != want || c.Rule != "" && c.Rule != d.Rule {
				return true, nil
			}
		}
	}
	return false, nil
}

// without is a document that lacks one rule. The others keep their ids, also those
// that are made of a rule's place.
func without(doc policy.Document, id string) policy.Document {
	ids := RuleIDs(doc)
	doc.FS.Rules, doc.Net.Allow, doc.Tools.Rules = slices.Clone(doc.FS.Rules), slices.Clone(doc.Net.Allow), slices.Clone(doc.Tools.Rules)
	for i, id := range ids {
		switch n, m := len(doc.FS.Rules), len(doc.Net.Allow); {
		case i < n:
			doc.FS.Rules[i].ID = id
		case i < n+m:
			doc.Net.Allow[i-n].ID = id
		case i < n+m+len(doc.Tools.Rules):
			doc.Tools.Rules[i-n-m].ID = id
		}
	}
	at := slices.Index(ids, id)
	drop := func(n int) bool {
		here := at >= 0 && at < n
		if !here {
			at -= n
		}
		return here
	}
	switch {
	case drop(len(doc.FS.Rules)):
		doc.FS.Rules = slices.Delete(doc.FS.Rules, at, at+1)
	case drop(len(doc.Net.Allow)):
		doc.Net.Allow = slices.Delete(doc.Net.Allow, at, at+1)
		if len(doc.Net.Allow) == 0 {
			doc.Net.Mode = policy.NetNone
		}
	case drop(len(doc.Tools.Rules)):
		doc.Tools.Rules = slices.Delete(doc.Tools.Rules, at, at+1)
	case id == "tools.rego":
		doc.Tools.Rego = nil
	}
	return doc
}
