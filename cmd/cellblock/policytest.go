package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"cellblock/kernel"
	"cellblock/kernel/trial"
	"cellblock/policy"
)

const policyTestLong = `Run the cases of a directory's *_test.yaml files in real jails, and compare what
becomes of each with what is expected and with what the policy says.

A file names a policy (a built-in one, or a file beside it), the modes, files that
each case finds, and cases:

  policy: mine.yaml
  modes: [enforce, report]        # enforce alone, when left out
  files:
    - {path: "${session}/in/a", text: "x"}
    - {path: "${home}/.ssh/id", text: "key"}
    - {path: "${session}/tool", exec: true}
  cases:
    - op: write /etc/hosts
      expect: deny                # or {enforce: deny, report: allow}
      rule: default.write         # may be left out
      errno: EROFS                # may be left out
    - name: the tool can be run
      op: exec ${session}/tool
      expect: allow
    - cell: |
        open("made", "w").write("x")
      expect: allow

Operations: read, write, create, truncate, mkdir, remove, rmdir, symlink, chmod,
chown, utime, xattr and exec with a path, rename and link with two, connect with an
address and port, bind with a port, tool with a name and arguments as JSON.

Of the directory's *.rego files, and those of the policies, the rules are run whose
names begin with test_, as 'opa test' does.

Every case has a session directory and a home of its own. What a mode does not refuse
is done: on other files of the host in a form that leaves them as they are; removing
and renaming these is not run. A cell is run as it is, with --mutate also under the
policy without one of its rules.

The exit code is 1 when a case fails, 2 for a file that cannot be read, and 5 when
cases could not be run.`

func newPolicyTest(c *console) *cobra.Command {
	var (
		flags               sessionFlags
		pattern, junit      string
		jobs                int
		asJSON, asTAP, each bool
		mutate              bool
	)
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "Run a directory's cases in real jails",
		Long:  policyTestLong,
		Args:  cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&pattern, "run", "", "run the cases alone whose FILE/NAME matches a regular expression")
	cmd.Flags().IntVarP(&jobs, "jobs", "j", 0, "how many sessions at a time (default the number of processors)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&asTAP, "tap", false, "print TAP")
	cmd.Flags().StringVar(&junit, "junit", "", "write JUnit's XML to a file as well")
	cmd.Flags().BoolVarP(&each, "verbose", "v", false, "print the cases that pass, too")
	cmd.Flags().BoolVar(&mutate, "mutate", false, "drop each rule in turn, and name those whose loss no case notices")
	cmd.Flags().StringVar(&flags.Profile, "profile", kernel.DefaultProfile, "jail profile; 'cellblock profile list' shows them")
	cmd.Flags().StringVar(&flags.PythonBin, "python", kernel.DefaultPython, "interpreter: a path, a name on PATH or a virtual environment")
	cmd.MarkFlagsMutuallyExclusive("json", "tap")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		selected, err := regexp.Compile(pattern)
		if err != nil {
			return usage(cmd, fmt.Errorf("flag --run: %w", err))
		}
		if jobs < 0 {
			return usage(cmd, fmt.Errorf("flag -j: %d is no number of sessions", jobs))
		}
		suites, err := loadSuites(args[0])
		if err != nil {
			return err
		}
		options, err := flags.options(cmd)
		if err != nil {
			return err
		}
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer cancel()
		how := trial.Options{Kernel: options, Jobs: jobs,
			Select: func(file, name string) bool { return selected.MatchString(filepath.Base(file) + "/" + name) }}
		asked := &evaluators{}
		defer asked.close()
		how.Rego = asked.of
		start := time.Now()
		report, err := trial.Run(ctx, suites, how)
		if err != nil {
			return err
		}
		fromRego, err := regoTests(args[0], suites)
		if err != nil {
			return err
		}
		for _, r := range fromRego {
			if how.Select(r.File, r.Name) {
				report.Results = append(report.Results, r)
			}
		}
		told := testReport{Report: report, Seconds: time.Since(start).Seconds()}
		if mutate {
			if told.Mutations, err = trial.Mutate(ctx, suites, how); err != nil {
				return err
			}
		}
		if junit != "" {
			if err := writeJUnit(junit, told.Seconds, told.junit()); err != nil {
				return err
			}
		}
		switch {
		case asJSON:
			err = c.printJSON(told)
		case asTAP:
			c.printTAP(told)
		default:
			c.printTests(told, each)
		}
		if err != nil {
			return err
		}
		switch failed, broken := report.Count(); {
		case broken > 0:
			return &exitError{code: exitJail}
		case failed > 0:
			return &exitError{code: exitRaised}
		case len(report.Results) == 0:
			return usage(cmd, fmt.Errorf("flag --run: %q selects no case", pattern))
		}
		return nil
	}
	return cmd
}

// loadSuites reads a directory's files of cases, and the policies that they name.
func loadSuites(dir string) ([]trial.Suite, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("policy test: %w", err)
	}
	var (
		suites []trial.Suite
		wrong  []error
	)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "_test.yaml") {
			continue
		}
		s, err := loadSuite(filepath.Join(dir, e.Name()))
		wrong = append(wrong, err)
		suites = append(suites, s)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	modules, err := filepath.Glob(filepath.Join(dir, "*_test.rego"))
	if len(suites)+len(modules) == 0 {
		return nil, fmt.Errorf("policy test: %s has no file *_test.yaml or *_test.rego; 'cellblock policy test --help' shows one", dir)
	}
	return suites, err
}

func loadSuite(file string) (trial.Suite, error) {
	f, err := os.Open(file)
	if err != nil {
		return trial.Suite{}, fmt.Errorf("policy test: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, policy.MaxDocument+1))
	if err != nil {
		return trial.Suite{}, fmt.Errorf("policy test: %w", err)
	}
	cases, err := policy.ParseCases(file, text)
	if err != nil {
		return trial.Suite{}, err
	}
	name := cases.Policy
	if _, err := kernel.BuiltInPolicy(name); err != nil && !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(file), name)
		if !strings.ContainsAny(name, "/.") {
			name = "./" + name
		}
	}
	doc, err := loadPolicy(name)
	if err != nil {
		return trial.Suite{}, fmt.Errorf("%s:%d: %w", file, cases.Line, err)
	}
	for _, c := range cases.Cases {
		if c.Rule != "" && !slices.Contains(trial.RuleIDs(doc), c.Rule) && !strings.HasPrefix(c.Rule, "default.") && !strings.HasPrefix(c.Rule, "ground.") && !strings.HasPrefix(c.Rule, "net.") && !strings.HasPrefix(c.Rule, "tools.") {
			return trial.Suite{}, &policy.Error{File: file, Line: c.Line, What: fmt.Sprintf("rule %q", c.Rule), Do: "the policy has no rule of this id: 'cellblock policy show' and 'policy explain' tell them"}
		}
	}
	return trial.Suite{Cases: cases, Policy: doc}, nil
}
