package kernel

import (
	"cellblock/jail/plan"
	"cellblock/policy"
	"cellblock/pyruntime"
)

// Info is what a session says of itself.
type Info struct {
	Session    string      `json:"session"`
	Directory  string      `json:"directory"`
	Tier       Tier        `json:"tier"`
	Mode       policy.Mode `json:"mode"`
	Generation int         `json:"generation"`
	Audit      string      `json:"audit,omitempty"` // the file of its record
	Layer      string      `json:"layer,omitempty"` // of mode shadow, by the name that 'shadow diff' takes
	Python     string      `json:"python,omitempty"`
	Skills     []string    `json:"skills,omitempty"`
	WorkerPID  int         `json:"workerPid,omitempty"` // on the host
	Stock      bool        `json:"stock,omitempty"`     // the worker was ready before the session came
	Inbound    []Inbound   `json:"inbound,omitempty"`
	Digests    Digests     `json:"digests"`
	// Witness are the forbidden acts that were tried before any foreign code ran,
	// and what became of each. A jail in which one succeeds does not start.
	Witness []Witness `json:"witness,omitempty"`
	// Limits are those of the jail, with what keeps each: cgroup v1, cgroup v2,
	// rlimit or tmpfs.
	Limits   []plan.Limit       `json:"limits,omitempty"`
	Degraded []plan.Degradation `json:"degraded,omitempty"`
}

// Digests are SHA-256 sums in hexadecimal of what a session rests on.
type Digests struct {
	Policy  string `json:"policy"`            // of the policy value's JSON
	Runtime string `json:"runtime"`           // of the worker's source
	Plan    string `json:"plan,omitempty"`    // of the plan as the stage read it
	Spec    string `json:"spec,omitempty"`    // of what the plan was compiled from
	Seccomp string `json:"seccomp,omitempty"` // of the profile of system calls
}

// Witness is one forbidden act: Got is the errno that refused it, or the value
// that was read.
type Witness struct {
	Name   string `json:"name"`
	Act    string `json:"act"`
	Arg    string `json:"arg,omitempty"`
	Got    string `json:"got"`
	Reason string `json:"reason"`
}

// standing is what a worker's start has shown. Empty without a jail.
type standing struct {
	plan, spec, seccomp string
	witness             []Witness
	limits              []plan.Limit
	degraded            []plan.Degradation
}

// Info returns what is known now; the jail's and the interpreter's part once a
// worker runs.
func (s *Session) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.infoOf(s.worker)
	i.Generation = s.generation
	return i
}

func (s *Session) infoOf(w *worker) Info {
	i := Info{Session: s.name, Directory: s.dir, Tier: s.opts.Tier, Mode: s.policy.Mode, Audit: s.record.path(), Layer: s.layer.id(), Inbound: s.inbound,
		Digests: Digests{Policy: s.digest, Runtime: pyruntime.Digest()}}
	if w == nil {
		return i
	}
	known := w.proc.Standing()
	i.Generation, i.Python, i.Skills, i.WorkerPID = w.generation, w.info.Python, w.info.Skills, w.proc.Pid()
	i.Stock = w.stock
	i.Digests.Plan, i.Digests.Spec, i.Digests.Seccomp = known.plan, known.spec, known.seccomp
	i.Witness, i.Limits, i.Degraded = known.witness, known.limits, known.degraded
	return i
}
