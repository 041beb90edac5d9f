package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"cellblock/kernel"
	"cellblock/policy"
	"cellblock/policy/audit"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// auditVariable is read where --mode was not given; hosts set it.
const auditVariable = "PI_KERNEL_AUDIT_POLICY"

// sessionFlags are the flags of every command that opens or describes a session.
type sessionFlags struct {
	kernel.Options
	mode, tier, onTimeout, net, runAs string
	policy                            string
	limits                            limitFlag
	audit, auditSync                  string
	keep                              string
	connect                           connectFlags
	noExtensions                      bool
}

// addSession adds the flags by which a policy's facts are found.
func (f *sessionFlags) addSession(set *pflag.FlagSet) {
	set.StringVar(&f.SessionDir, "session", ".", "session directory: where cells start and what they may write")
	set.StringVar(&f.mode, "mode", "", "what becomes of writes outside it: off, report, shadow or enforce (default report, or $"+auditVariable+")")
	set.StringVar(&f.Profile, "profile", kernel.DefaultProfile, "jail profile; 'cellblock profile list' shows them")
	set.StringVar(&f.PythonBin, "python", kernel.DefaultPython, "interpreter: a path, a name on PATH or a virtual environment")
}

func (f *sessionFlags) add(set *pflag.FlagSet) {
	f.addSession(set)
	set.StringVar(&f.policy, "policy", "", "policy: a FILE, or the name of a built-in one (default the one called like the profile)")
	set.StringVar(&f.tier, "tier", string(kernel.TierJail), "what stands between cell and host: jail, or process (nothing)")
	set.StringVar(&f.net, "net", "", "network: host, or none in every mode (default the policy's, which counts under enforce)")
	set.Var(&f.limits, "limit", "limits such as memory=256MiB,tasks=64; also open-files, file-size, cpu, tmp, shadow, output, wall")
	set.StringArrayVar(&f.Env, "env", nil, "environment: NAME passes a variable on, NAME=VALUE sets one (repeatable)")
	set.StringVar(&f.TimeZone, "tz", "", "time zone, such as Asia/Tokyo (default $TZ, or UTC)")
	set.StringVar(&f.runAs, "run-as", "", "as root only: the id the jail runs as, UID or UID:GID")
}

// addCells adds the flags of the commands that run cells.
func (f *sessionFlags) addCells(set *pflag.FlagSet) {
	f.add(set)
	set.DurationVar(&f.CellTimeout, "timeout", kernel.DefaultCellTimeout, "time limit of one cell")
	set.StringVar(&f.onTimeout, "on-timeout", string(kernel.TimeoutKill), "what the limit does: kill (state is lost) or interrupt (kept if the cell unwinds)")
	set.DurationVar(&f.StartTimeout, "start-timeout", kernel.DefaultStartTimeout, "time limit of a worker's start")
	set.StringVar(&f.keep, "keep-definitions", "", "keep what cells define (functions, classes, imports, constants) under NAME, and begin with what is kept there")
	set.StringArrayVar(&f.Extensions, "extensions", nil, "directory of extensions (repeatable; default ~/.cellblock/extensions and .cellblock/extensions of the session)")
	set.BoolVar(&f.noExtensions, "no-extensions", false, "load no extensions")
	set.StringVar(&f.ExtensionPython, "ext-python", "", "interpreter of extensions (default the session's)")
	set.BoolVar(&f.Artefacts, "artefacts", false, "tell with each cell which files of the session directory it made and changed")
	set.IntVar(&f.MaxOutput, "max-output", kernel.DefaultMaxOutput, "output cap, in characters a stream")
}

// addRecord adds the flags of the commands whose sessions are recorded. Those sessions
// may be a server's, too.
func (f *sessionFlags) addRecord(set *pflag.FlagSet) {
	f.connect.add(set)
	set.StringVar(&f.audit, "audit", "", "file of the session's record, or none (default a new one in $XDG_STATE_HOME/cellblock/audit)")
	set.StringVar(&f.auditSync, "audit-sync", "bounds", "when records are forced to the disk: bounds (start and end), each or none; a kill loses none")
}

// complete offers the values that a shell can complete.
func (f *sessionFlags) complete(cmd *cobra.Command) {
	fixed := func(name string, values ...string) {
		if cmd.Flags().Lookup(name) != nil {
			cobra.CheckErr(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
		}
	}
	fixed("mode", "off", "report", "shadow", "enforce")
	fixed("tier", "jail", "process")
	fixed("net", "none", "host")
	fixed("on-timeout", "kill", "interrupt")
	fixed("audit-sync", "bounds", "each", "none")
	fixed("profile", profileNames()...)
	for _, name := range []string{"session", "extensions"} {
		if cmd.Flags().Lookup(name) != nil {
			cobra.CheckErr(cmd.MarkFlagDirname(name))
		}
	}
}

// options checks the flags and returns what the kernel is asked for.
func (f *sessionFlags) options(cmd *cobra.Command) (kernel.Options, error) {
	o := f.Options
	mode := f.mode
	if !cmd.Flags().Changed("mode") {
		mode = os.Getenv(auditVariable)
	}
	parsed, err := policy.ParseMode(mode)
	if err != nil {
		from := "flag --mode"
		if !cmd.Flags().Changed("mode") {
			from = "environment variable " + auditVariable
		}
		return o, usage(cmd, fmt.Errorf("%s: %w", from, err))
	}
	o.Mode = parsed
	o.Tier, o.OnTimeout, o.Net = kernel.Tier(f.tier), kernel.OnTimeout(f.onTimeout), policy.Net(f.net)
	o.Limits = f.limits.Limits
	for _, timeout := range []struct {
		name  string
		value time.Duration
	}{{"timeout", o.CellTimeout}, {"start-timeout", o.StartTimeout}} {
		if cmd.Flags().Changed(timeout.name) && timeout.value <= 0 {
			return o, usage(cmd, fmt.Errorf("flag --%s: %v is no time limit; give one such as 2s", timeout.name, timeout.value))
		}
	}
	if cmd.Flags().Changed("max-output") && o.MaxOutput <= 0 {
		return o, usage(cmd, fmt.Errorf("flag --max-output: %d is no cap; give a number of characters, such as %d", o.MaxOutput, kernel.DefaultMaxOutput))
	}
	if cmd.Flags().Changed("tz") {
		if err := checkZone(o.TimeZone); err != nil {
			return o, usage(cmd, fmt.Errorf("flag --tz: %w", err))
		}
	}
	if f.policy != "" {
		doc, err := loadPolicy(f.policy)
		if err != nil {
			return o, usage(cmd, err)
		}
		o.Policy = &doc
	}
	if f.runAs != "" {
		if o.HostUID, o.HostGID, err = parseIDs(f.runAs); err != nil {
			return o, usage(cmd, err)
		}
	}
	if f.noExtensions {
		if len(o.Extensions) > 0 {
			return o, usage(cmd, errors.New("flag --no-extensions: loads none, and --extensions names some; leave one out"))
		}
		o.Extensions = []string{}
	}
	for _, dir := range o.Extensions {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return o, usage(cmd, fmt.Errorf("flag --extensions: %q is not a directory", dir))
		}
	}
	o.Rego = regoProgram()
	if state := stateDir(); state != "" {
		o.State = []string{state}
		o.Runtime = filepath.Join(state, "runtime")
		o.Shadow = filepath.Join(state, "shadow")
		o.ExtensionLogs = filepath.Join(state, "extensions")
		o.Trust = filepath.Join(state, "trust")
	}
	if cmd.Flags().Changed("keep-definitions") {
		if o.Definitions = definitionsDir(); o.Definitions == "" {
			return o, usage(cmd, fmt.Errorf("flag --keep-definitions: %w", errNoDefinitions))
		}
		o.Name, o.KeepDefinitions = f.keep, true
	}
	if cmd.Flags().Lookup("audit") == nil {
		return o, nil
	}
	if o.AuditSync, err = audit.ParseSync(f.auditSync); err != nil {
		return o, usage(cmd, err)
	}
	switch dir := auditDir(); {
	case f.audit == "none":
	case f.audit != "":
		o.Audit = f.audit
	case dir != "":
		o.Audit = filepath.Join(dir, auditName())
	}
	return o, nil
}

// open opens the session that the flags describe. Where nobody has asked for a
// record and none can be made, a session that does not enforce goes on without.
func (f *sessionFlags) open(cmd *cobra.Command, c *console, o kernel.Options) (*kernel.Session, error) {
	if o.Audit == "" && f.audit == "" {
		c.say("audit: no home to keep a record in; --audit FILE names one, --audit none silences this")
	}
	s, err := kernel.Open(o)
	if f.audit == "" && o.Mode != policy.Enforce && errors.As(err, new(*audit.OpenError)) {
		c.say("%v; this session is not recorded", err)
		o.Audit = ""
		s, err = kernel.Open(o)
	}
	if err != nil {
		return nil, openError(cmd, err)
	}
	c.inbound(s.Info().Inbound)
	return s, nil
}

// closeSession ends a session and tells when its record could not be ended.
func (c *console) closeSession(s cellSession) {
	if err := s.Close(); err != nil {
		c.say("%v", err)
	}
}

// checkZone refuses the name of a zone that libc would take for UTC in silence.
// A rule in the notation of POSIX, such as EST5EDT, has a digit and passes.
func checkZone(name string) error {
	if strings.ContainsAny(name, "0123456789") {
		return nil
	}
	if _, err := time.LoadLocation(name); err != nil || name == "" {
		return fmt.Errorf("%q is not the name of a time zone that this host knows; names are such as Europe/Berlin or UTC", name)
	}
	return nil
}

func parseIDs(text string) (uid, gid int, err error) {
	first, second, both := strings.Cut(text, ":")
	if !both {
		second = first
	}
	uid, err = strconv.Atoi(first)
	gid, err2 := strconv.Atoi(second)
	switch {
	case err != nil || err2 != nil:
		return 0, 0, fmt.Errorf("flag --run-as: %q is not UID or UID:GID in numbers", text)
	case uid <= 0 || gid <= 0:
		return 0, 0, errors.New("flag --run-as: 0 is root; name an unprivileged id")
	case os.Geteuid() != 0:
		return 0, 0, errors.New("flag --run-as: only root can run a jail as another id; leave it out")
	}
	return uid, gid, nil
}

// stateDir is where the launcher keeps the history of the repl and the records
// of sessions. Empty when there is no home.
func stateDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "cellblock")
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return filepath.Join(home, ".local", "state", "cellblock")
}
