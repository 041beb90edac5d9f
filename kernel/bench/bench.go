package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"cellblock/kernel"
	"cellblock/policy"
)

// Options say what is measured, and how often. Only Program has no default.
type Options struct {
	// Program is the cellblock executable, for what is started anew each time.
	Program string
	// Python is the interpreter of every way but ipykernel's; default /usr/bin/python3,
	// or else that of PATH.
	Python string
	// Rows names those to measure; default all.
	Rows []string
	// Rounds is how often each way is measured after the warm-up; default 40. Work
	// that is over in microseconds is done more often.
	Rounds int
	// Idle is how many sessions the row "idle" holds at once; default 0, which
	// leaves it out. Each takes some 8 MB.
	Idle int
	// Quick makes the work itself small. What it finds tells nothing but that the
	// ways can be had.
	Quick bool
}

// RowError is the name of a row that there is none of.
type RowError struct {
	Name string
}

func (e *RowError) Error() string {
	return fmt.Sprintf("row %q: there is none; there are %s", e.Name, strings.Join(RowNames(), ", "))
}

// bench is one run.
type bench struct {
	Options
	python string
	dir    string // of its own: sessions and bundles lie in it
	state  string // what sessions leave
	closes []func()
}

func (b *bench) closing(f func()) { b.closes = append(b.closes, f) }

// row is a kind of work. It returns nil where the options leave it out.
type row struct {
	name    string
	measure func(*bench, context.Context) (*Row, error)
}

var rows = []row{
	{"cold", (*bench).cold},
	{"ready", (*bench).ready},
	{"cell", (*bench).cell},
	{"host-call", (*bench).hostCall},
	{"print", (*bench).output},
	{"compute", (*bench).compute},
	{"read", (*bench).read},
	{"write", (*bench).write},
	{"throughput", (*bench).throughput},
	{"memory", (*bench).memory},
	{"idle", (*bench).idle},
}

// RowNames lists what Options.Rows may name.
func RowNames() []string {
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	return names
}

// Run measures. The error is that of its own set-up, a *RowError, or the context's;
// what a way cannot do stands in the report.
func Run(ctx context.Context, opts Options) (Report, error) {
	for _, name := range opts.Rows {
		if !slices.Contains(RowNames(), name) {
			return Report{}, &RowError{name}
		}
	}
	b := &bench{Options: opts}
	if err := b.prepare(); err != nil {
		return Report{}, err
	}
	defer func() {
		for _, f := range slices.Backward(b.closes) {
			f()
		}
	}()
	version, err := exec.CommandContext(ctx, b.python, "-I", "--version").Output()
	if err != nil {
		return Report{}, fmt.Errorf("python %q: %w", b.python, err)
	}
	report := Report{Linux: linuxRelease(), Processors: runtime.NumCPU(), Python: strings.TrimSpace(string(version)) + " (" + b.python + ")", UID: os.Geteuid()}
	for _, r := range rows {
		if len(b.Rows) > 0 && !slices.Contains(b.Rows, r.name) {
			continue
		}
		found, err := r.measure(b, ctx)
		if err != nil {
			return report, fmt.Errorf("row %s: %w", r.name, err)
		}
		if found != nil {
			report.Rows = append(report.Rows, *found)
		}
	}
	return report, nil
}

func (b *bench) prepare() error {
	if b.Program == "" {
		return errors.New("bench: no program to start")
	}
	if b.Rounds == 0 {
		b.Rounds = 40
	}
	if b.Quick {
		b.Rounds = 2
	}
	b.python = b.Python
	if b.python == "" {
		b.python = "/usr/bin/python3"
	}
	found, err := exec.LookPath(b.python)
	if err != nil && b.Python == "" {
		found, err = exec.LookPath("python3")
	}
	if err != nil {
		return fmt.Errorf("python %q: not found: install it, or name another", b.python)
	}
	if b.python, err = filepath.Abs(found); err != nil {
		return err
	}
	// Not in /tmp, which some ways replace.
	if b.dir, err = os.MkdirTemp("/var/tmp", "cellblock-bench-"); err != nil {
		return err
	}
	b.closing(func() { os.RemoveAll(b.dir) })
	b.state = filepath.Join(b.dir, "state")
	return os.Mkdir(b.state, 0o700)
}

// warm is how many rounds do not count.
func (b *bench) warm() int {
	if b.Quick {
		return 1
	}
	return 3
}

// common are the options of all sessions, without a directory.
func (b *bench) common(mode policy.Mode) kernel.Options {
	return kernel.Options{PythonBin: b.python, Mode: mode, SkillRoots: []string{},
		State: []string{b.state}, Runtime: filepath.Join(b.state, "runtime")}
}

// options are those of a session in a directory of its own.
func (b *bench) options(mode policy.Mode) (o kernel.Options, err error) {
	o = b.common(mode)
	o.SessionDir, err = os.MkdirTemp(b.dir, "session-")
	return o, err
}

// session is a runner in a jail.
type session struct{ *kernel.Session }

func (b *bench) open(ctx context.Context, mode policy.Mode, change func(*kernel.Options)) (session, error) {
	o, err := b.options(mode)
	if err != nil {
		return session{}, err
	}
	if change != nil {
		change(&o)
	}
	s, err := kernel.Open(o)
	if err != nil {
		return session{}, err
	}
	if err := s.Start(ctx); err != nil {
		s.Close()
		return session{}, err
	}
	return session{s}, nil
}

func (s session) run(ctx context.Context, code string) (string, error) {
	r := s.Call(ctx, kernel.Call{Code: code})
	if r.IsError {
		return "", errors.New(r.Content[0].Text)
	}
	if r.Details.Value == nil {
		return "None", nil
	}
	return *r.Details.Value, nil
}

// pids are the worker and the first process of its jail.
func (s session) pids() ([]int, error) {
	worker := s.Info().WorkerPID
	first, err := firstOf(worker)
	if err != nil {
		return nil, err
	}
	return []int{first, worker}, nil
}

func (s session) end() { s.Close() }
