package trial

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"cellblock/kernel"
	"cellblock/policy"
)

// Suite is a file of cases and the policy that it is about.
type Suite struct {
	Cases  policy.CaseFile
	Policy policy.Document
}

// Options say how cases are run.
type Options struct {
	// Kernel is what sessions are opened with. Directory, home, mode, policy and the
	// directory of layers are each case's own.
	Kernel kernel.Options
	Jobs   int                                   // sessions at a time; 0 is the number of processors
	Select func(file, name string) bool          // nil for all cases
	Rego   func(Suite) (policy.Evaluator, error) // of a suite whose policy delegates host calls; nil for none
}

// Result is what became of one case in one mode.
type Result struct {
	File       string        `json:"file"`
	Line       int           `json:"line"`
	Name       string        `json:"name"`
	Mode       policy.Mode   `json:"mode"`
	Want       policy.Effect `json:"want,omitempty"`
	Got        policy.Effect `json:"got,omitempty"`
	Rule       string        `json:"rule,omitempty"`  // that decided
	Errno      string        `json:"errno,omitempty"` // in which it was refused
	Failure    string        `json:"failure,omitempty"`
	Error      string        `json:"error,omitempty"` // why it could not be run
	Skipped    bool          `json:"skipped,omitempty"`
	DurationMs float64       `json:"durationMs"` // of a cell, or a share of what ran with it
}

// Passed reports whether all is as it was expected.
func (r Result) Passed() bool { return r.Failure == "" && r.Error == "" }

// Coverage says which rules of a policy decided no case.
type Coverage struct {
	Policy string   `json:"policy"`
	Rules  int      `json:"rules"`
	Unused []string `json:"unused"` // ids, in the order of the document
}

// Report is what became of all.
type Report struct {
	Results  []Result   `json:"results"`
	Coverage []Coverage `json:"coverage"`
	Sessions int        `json:"sessions"` // that were opened
}

// Count returns how many failed, and how many could not be run.
func (r Report) Count() (failed, broken int) {
	for _, one := range r.Results {
		switch {
		case one.Error != "":
			broken++
		case one.Failure != "":
			failed++
		}
	}
	return failed, broken
}

// task is what one session is opened for: operations that do not touch each other, or
// one cell.
type task struct {
	suite   *Suite
	mode    policy.Mode
	cases   []int // indices of suite.Cases.Cases
	results []int // indices of Report.Results, for each
}

// Run runs the cases. The error says that the cases cannot be run at all; what keeps
// one of them from being run stands in its result.
func Run(ctx context.Context, suites []Suite, o Options) (Report, error) {
	report := Report{Results: []Result{}, Coverage: []Coverage{}}
	var tasks []*task
	for i := range suites {
		tasks = append(tasks, plan(&suites[i], o, &report)...)
	}
	r := &runner{options: o, report: &report, used: map[*Suite]map[string]bool{}}
	for i := range suites {
		r.used[&suites[i]] = map[string]bool{}
	}
	r.all(ctx, tasks)
	if err := ctx.Err(); err != nil {
		return report, err
	}
	report.Coverage = r.coverage(suites)
	return report, nil
}

// maxTogether bounds how many operations share a session.
const maxTogether = 100

// plan parts the cases of a suite into tasks.
func plan(s *Suite, o Options, report *Report) []*task {
	open := map[policy.Mode][]*task{}
	var all []*task
	for i, c := range s.Cases.Cases {
		if o.Select != nil && !o.Select(s.Cases.File, c.Name) {
			continue
		}
		for _, m := range c.Order() {
			report.Results = append(report.Results, Result{File: s.Cases.File, Line: c.Line, Name: c.Name, Mode: m, Want: c.Expect[m]})
			at := len(report.Results) - 1
			var into *task
			if c.Cell == "" {
				free := slices.IndexFunc(open[m], func(t *task) bool { return len(t.cases) < maxTogether && !t.touches(c) })
				if free >= 0 {
					into = open[m][free]
				}
			}
			if into == nil {
				into = &task{suite: s, mode: m}
				all = append(all, into)
				if c.Cell == "" {
					open[m] = append(open[m], into)
				}
			}
			into.cases, into.results = append(into.cases, i), append(into.results, at)
		}
	}
	return all
}

// touches reports whether one of the task's operations changes something that c uses,
// or the other way round.
func (t *task) touches(c policy.Case) bool {
	files := t.suite.Cases.Files
	for _, i := range t.cases {
		o := t.suite.Cases.Cases[i]
		if !changes(o, files) && !changes(c, files) {
			continue
		}
		for _, a := range places(o) {
			for _, b := range places(c) {
				if policy.Overlap(a, b) {
					return true
				}
			}
		}
	}
	return false
}

// runner runs tasks, several at a time.
type runner struct {
	options Options
	report  *Report

	mu   sync.Mutex // of report and used
	used map[*Suite]map[string]bool

	outside sync.Mutex // held by what changes files of the host itself
}

func (r *runner) all(ctx context.Context, tasks []*task) {
	jobs := r.options.Jobs
	if jobs <= 0 {
		jobs = runtime.NumCPU()
	}
	todo := make(chan *task)
	var wait sync.WaitGroup
	for range min(jobs, len(tasks)) {
		wait.Go(func() {
			for t := range todo {
				r.one(ctx, t)
			}
		})
	}
	for _, t := range tasks {
		todo <- t
	}
	close(todo)
	wait.Wait()
}

// one runs a task. What goes wrong is the result of all its cases that have none.
func (r *runner) one(ctx context.Context, t *task) {
	start := time.Now()
	done := make([]Result, len(t.cases))
	r.mu.Lock()
	for i, at := range t.results {
		done[i] = r.report.Results[at]
	}
	r.mu.Unlock()
	err := ctx.Err()
	if err == nil {
		err = r.try(ctx, t, done)
	}
	share := float64(time.Since(start).Microseconds()) / 1000 / float64(len(t.cases))
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, at := range t.results {
		if err != nil && done[i].Passed() && done[i].Got == "" {
			done[i].Error = err.Error()
		}
		done[i].DurationMs = share
		r.report.Results[at] = done[i]
		if done[i].Rule != "" {
			r.used[t.suite][done[i].Rule] = true
		}
	}
}

// elsewhere reports whether the set-up makes files in places that are not the task's own.
func (t *task) elsewhere() bool {
	return slices.ContainsFunc(t.suite.Cases.Files, func(f policy.CaseSetup) bool { return strings.HasPrefix(f.Path, "/") })
}

func (r *runner) try(ctx context.Context, t *task, done []Result) error {
	if t.elsewhere() {
		r.outside.Lock()
		defer r.outside.Unlock()
	}
	room, err := newRoom(t.suite.Cases.Files)
	if err != nil {
		return err
	}
	defer room.remove()
	options := room.kernelOptions(r.options.Kernel, t.suite.Policy, t.mode)
	if t.suite.Cases.Cases[t.cases[0]].Cell != "" {
		return r.cell(ctx, t, options, &done[0])
	}
	return r.operations(ctx, t, options, room, done)
}

// open opens a session and counts it.
func (r *runner) open(o kernel.Options) (*kernel.Session, error) {
	s, err := kernel.Open(o)
	if err != nil {
		return nil, fmt.Errorf("no session: %w", err)
	}
	r.mu.Lock()
	r.report.Sessions++
	r.mu.Unlock()
	return s, nil
}
