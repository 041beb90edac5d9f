package integration

import (
	"fmt"
	"strings"
	"testing"

	"cellblock/jail"
	"cellblock/jail/plan"
	"cellblock/kernel"
)

// compileFor makes the plan that a session in mode enforce would get on a host
// with these features: the same composition as a start, up to the pure step.
func compileFor(t testing.TB, features jail.Features, opts ...option) (*plan.Plan, error) {
	t.Helper()
	o := kernel.Options{PythonBin: pythonBin(), SessionDir: newDir(t)}
	mode("enforce")(&o)
	for _, opt := range opts {
		opt(&o)
	}
	return kernel.PlanFor(o, features)
}

// ordinaryHost is this host as an ordinary user without cgroup rights sees it.
func ordinaryHost(t testing.TB) jail.Features {
	t.Helper()
	f := jail.Probe()
	f.UID, f.GID, f.Privileged = 1000, 1000, false
	return f.Without(jail.Root)
}

// TestMissingFeatures: each absent feature is an error of its own that names
// it and the remedy, or a degradation that the plan states. None passes in
// silence.
func TestMissingFeatures(t *testing.T) {
	for _, c := range []struct {
		feature jail.Feature
		change  func(*jail.Features)
		refused bool // only an error is right
	}{
		{feature: jail.UserNamespace, refused: true},
		{feature: jail.MountNamespace, refused: true},
		{feature: jail.PIDNamespace, refused: true},
		{feature: jail.IPCNamespace, refused: true},
		{feature: jail.NetworkNamespace, refused: true},
		{feature: jail.Seccomp, refused: true},
		{feature: jail.Landlock, change: func(f *jail.Features) { f.LandlockABI = 0 }},
		{feature: jail.CgroupMemory},
		{feature: jail.CgroupTasks},
		{feature: jail.Cgroup, change: func(f *jail.Features) {
			*f = f.Without(jail.CgroupMemory, jail.CgroupTasks, jail.CgroupKill)
			f.CgroupMode = "none"
		}},
		{feature: jail.CgroupNamespace},
		{feature: jail.FreshProc},
	} {
		for _, host := range []string{"root", "ordinary user"} {
			t.Run(string(c.feature)+" as "+host, func(t *testing.T) {
				features := jail.Probe()
				if host == "ordinary user" {
					features = ordinaryHost(t)
				}
				if host == "root" {
					features.UID, features.GID, features.Privileged = 0, 0, true
					features = features.With(jail.Root, jail.Finding{Answer: jail.Yes, Why: "simulated"})
				}
				if c.change != nil {
					c.change(&features)
				}
				features = features.With(c.feature, jail.Finding{Answer: jail.No,
					Why: "simulated absence of " + string(c.feature), Remedy: "remedy for " + string(c.feature)})
				p, err := compileFor(t, features)
				if err != nil {
					if !strings.Contains(err.Error(), "simulated absence") && !strings.Contains(err.Error(), string(c.feature)) {
						t.Errorf("the error does not name the feature: %v", err)
					}
					if strings.Contains(err.Error(), "remedy") || strings.Contains(err.Error(), ":") {
						return
					}
					t.Errorf("the error names no cause: %v", err)
					return
				}
				if c.refused {
					t.Fatalf("compiled without %s", c.feature)
				}
				if said := fmt.Sprintf("%+v", p.Degraded); !strings.Contains(said, string(c.feature)) && !strings.Contains(said, "simulated absence") {
					t.Errorf("nothing is said about the absent %s; degraded: %s", c.feature, said)
				}
			})
		}
	}
}

// TestLimitsAreSaidWhereNoCgroupIs: the mechanism that stands in is in the plan.
func TestLimitsAreSaidWhereNoCgroupIs(t *testing.T) {
	f := ordinaryHost(t).Without(jail.Cgroup, jail.CgroupMemory, jail.CgroupTasks, jail.CgroupKill)
	f.CgroupMode = "none"
	p, err := compileFor(t, f)
	if err != nil {
		t.Fatal(err)
	}
	said := strings.ToLower(fmt.Sprintf("%+v", p.Degraded))
	contains(t, "degraded", said, "rlimit")
}
