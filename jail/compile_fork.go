package jail

import (
	"slices"

	"cellblock/jail/plan"
)

// forked has the worker forked by a warm parent. It comes from outside of the jail, so
// that nothing is inherited: it joins what the stage has built, and gives everything up
// by the steps that the stage has gone by, one after the other.
func (c *compiler) forked() {
	c.plan.Forked = true
	c.stage(plan.Step{Op: plan.OpAdopt,
		Reason: "the stage stays as pid 1; the worker joins it, and is no child of its"})
	c.launcher(plan.Step{Op: plan.OpFork, Path: c.spec.Argv[0],
		Reason: "a process of a warm parent's memory, which has run no foreign code; it enters the jail's cgroup first"})
	own := slices.Clone(c.plan.Steps[c.restricting:])
	add := func(s plan.Step) {
		s.Side = plan.Fork
		c.plan.Steps = append(c.plan.Steps, s)
	}
	for _, s := range own {
		if s.Op == plan.OpCloseFDs { // what it brings is not for the jail
			add(s)
		}
	}
	add(plan.Step{Op: plan.OpJoin, Reason: "all namespaces of the stage at once, its user and group; a pid of its namespace by one more fork"})
	for _, s := range own {
		switch {
		case s.Op == plan.OpCloseFDs || s.Op == plan.OpAdopt || s.Side != plan.Stage:
		case s.Op == plan.OpUndumpable:
			add(plan.Step{Op: plan.OpDumpable, Reason: "the worker reads its own files in proc, as a program that was executed does"})
		case s.Op == plan.OpLandlock:
			s.Rules = nil
			s.Reason = "by the ruleset that the stage has made and gone by, since it names files of this jail"
			add(s)
		case s.Op == plan.OpSeccomp || s.Op == plan.OpWitness:
			continue
		default:
			add(s)
		}
	}
	c.observeForked(add)
	for _, s := range own {
		if s.Op == plan.OpSeccomp {
			add(s)
		}
	}
	c.witnessForked()
	add(plan.Step{Op: plan.OpWitness, Reason: "the worker itself tries what is forbidden before foreign code comes, and the launcher looks at it from outside"})
}

// observeForked adds the observer's step by its own side.
func (c *compiler) observeForked(add func(plan.Step)) {
	before := len(c.plan.Steps)
	c.observe()
	if len(c.plan.Steps) > before {
		s := c.plan.Steps[before]
		c.plan.Steps = c.plan.Steps[:before]
		add(s)
	}
}

// witnessForked lists what is tried by the worker, and looked at from outside, of what the
// stage has tried. What belongs to a namespace alone (mounts, routes) the worker has in
// common with the stage; that it has the same ones is looked at.
func (c *compiler) witnessForked() {
	for _, check := range slices.Clone(c.plan.Witness) {
		switch check.Act {
		case "namespace":
			check.Want = []string{"the stage's"}
			check.Reason = "looked at by the launcher, from outside"
		case "status":
			// Read outside of the user namespace, where ids are the host's.
			switch check.Arg {
			case "Uid":
				check.Want = []string{fourTimes(c.plan.IDs.OuterUID)}
			case "Gid":
				check.Want = []string{fourTimes(c.plan.IDs.OuterGID)}
			}
		default:
			if actCall(check) == nil {
				continue
			}
		}
		check.Name, check.Forked = "worker "+check.Name, true
		c.plan.Witness = append(c.plan.Witness, check)
	}
	if c.observed() {
		c.plan.Witness = append(c.plan.Witness, plan.Check{Name: "told", Act: "tell", Arg: toldPath, Want: []string{"told"}, Reason: "the launcher is told of changes", Forked: true})
	}
}
