package policy

// Rule allows changes beneath a path, or forbids every access to it, and says
// why. Rules are plain values so that a list of them prints as a table.
type Rule struct {
	ID     string `json:"id"`     // stable name, shown in decisions
	Path   string `json:"path"`   // absolute and cleaned
	Reason string `json:"reason"` // for the reader of a denial
}

// Net says which network a session has.
type Net string

// The networks.
const (
	NetNone Net = "none" // loopback of its own only
	NetHost Net = "host" // the host's
)

// Limits bound what a session may use. Zero means no limit.
type Limits struct {
	MemoryBytes   int64 `json:"memoryBytes,omitempty"`   // of all its processes together
	Tasks         int64 `json:"tasks,omitempty"`         // processes and threads
	OpenFiles     int64 `json:"openFiles,omitempty"`     // a process
	FileSizeBytes int64 `json:"fileSizeBytes,omitempty"` // one file
	CPUSeconds    int64 `json:"cpuSeconds,omitempty"`    // a process
	TmpBytes      int64 `json:"tmpBytes,omitempty"`      // private /tmp
	OutputBytes   int64 `json:"outputBytes,omitempty"`   // full-output files of one generation on disk
}

// DefaultLimits suit one agent's session on a shared host.
func DefaultLimits() Limits {
	return Limits{
		MemoryBytes: 2 << 30, Tasks: 512, OpenFiles: 4096,
		TmpBytes: 512 << 20, OutputBytes: 1 << 30,
	}
}

// Merge returns l with every limit that o sets put in place.
func (l Limits) Merge(o Limits) Limits {
	set := func(dst *int64, v int64) {
		if v != 0 {
			*dst = v
		}
	}
	set(&l.MemoryBytes, o.MemoryBytes)
	set(&l.Tasks, o.Tasks)
	set(&l.OpenFiles, o.OpenFiles)
	set(&l.FileSizeBytes, o.FileSizeBytes)
	set(&l.CPUSeconds, o.CPUSeconds)
	set(&l.TmpBytes, o.TmpBytes)
	set(&l.OutputBytes, o.OutputBytes)
	return l
}

// Policy is the one value from which reports, audit entries and the plan of a
// jail are made. It is a plain value: copy it, compare it, print it.
type Policy struct {
	Mode    Mode   `json:"mode"`
	Write   []Rule `json:"write"`   // changes are allowed beneath these
	Private []Rule `json:"private"` // the session's own places: allowed, gone at its end
	Devices []Rule `json:"devices"` // device files that may be written; never beneath them
	Deny    []Rule `json:"deny"`    // neither read nor changed; wins over the others
	Net     Net    `json:"net"`
	Limits  Limits `json:"limits"`
	Env     Env    `json:"env"`
}

// Facts are what a policy must know about one session.
type Facts struct {
	Mode       Mode
	SessionDir string   // canonical absolute path
	Home       string   // the operator's home directory, for secrets; may be empty
	State      []string // the launcher's own directories, never shown to a session
	Net        Net      // empty: none under enforce, host otherwise
	Limits     Limits   // what is set replaces the default
	Env        Env      // what is set is added to the default
}

// Default returns the policy of a session for which no document was named:
// read what the user may read except secrets, write the session directory and
// the session's private places.
func Default(f Facts) Policy {
	mode := f.Mode.OrDefault()
	net := f.Net
	if net == "" {
		net = NetHost
		if mode == Enforce {
			net = NetNone
		}
	}
	p := Policy{
		Mode: mode,
		Write: []Rule{{ID: "fs.write.session", Path: f.SessionDir,
			Reason: "the session's own directory"}},
		Private: []Rule{
			{ID: "fs.private.tmp", Path: "/tmp", Reason: "private to the session, gone at its end"},
			{ID: "fs.private.run", Path: "/run", Reason: "private to the session, gone at its end"},
			{ID: "fs.private.shm", Path: "/dev/shm", Reason: "private to the session, gone at its end"},
			{ID: "fs.private.mqueue", Path: "/dev/mqueue", Reason: "private to the session, gone at its end"},
			{ID: "fs.private.pts", Path: "/dev/pts", Reason: "terminals of the session itself"},
			{ID: "fs.private.proc", Path: "/proc/self", Reason: "the process's own entries"},
		},
		Devices: devices(),
		Deny:    secrets(f.Home),
		Net:     net,
		Limits:  DefaultLimits().Merge(f.Limits),
		Env:     DefaultEnv().Merge(f.Env),
	}
	for _, s := range f.State {
		p.Deny = append(p.Deny, Rule{ID: "fs.deny.state", Path: s,
			Reason: "the launcher's own state"})
	}
	return p
}

func devices() []Rule {
	var out []Rule
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx",
		"stdin", "stdout", "stderr", "fd"} {
		out = append(out, Rule{ID: "fs.device." + name, Path: "/dev/" + name,
			Reason: "harmless device of the session's own /dev"})
	}
	return out
}

// secrets lists what under a home directory is worth stealing.
func secrets(home string) []Rule {
	if home == "" || home == "/" {
		return nil
	}
	var out []Rule
	for _, s := range []struct{ path, what string }{
		{".ssh", "ssh keys"},
		{".gnupg", "gpg keys"},
		{".aws", "cloud credentials"},
		{".azure", "cloud credentials"},
		{".config/gcloud", "cloud credentials"},
		{".config/doctl", "cloud credentials"},
		{".oci", "cloud credentials"},
		{".kube", "cluster credentials"},
		{".docker", "registry credentials"},
		{".netrc", "passwords of hosts"},
		{".git-credentials", "passwords of git remotes"},
		{".config/gh", "forge tokens"},
		{".config/glab-cli", "forge tokens"},
		{".npmrc", "registry tokens"},
		{".pypirc", "registry tokens"},
		{".cargo/credentials.toml", "registry tokens"},
		{".config/pip/pip.conf", "registry passwords"},
		{".password-store", "passwords"},
		{".local/share/keyrings", "passwords"},
		{".mozilla", "browser profile"},
		{".config/google-chrome", "browser profile"},
		{".config/chromium", "browser profile"},
		{".bash_history", "shell history often holds secrets"},
		{".zsh_history", "shell history often holds secrets"},
		{".python_history", "history often holds secrets"},
		{".terraform.d", "cloud tokens"},
		{".vault-token", "vault token"},
	} {
		out = append(out, Rule{ID: "fs.deny.secret", Path: home + "/" + s.path, Reason: s.what})
	}
	return out
}
