package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"cellblock/kernel"
	"cellblock/policy"
)

// Names of ways that more than one row has.
const (
	wayBare       = "bare interpreter"
	wayBubblewrap = "bubblewrap, all namespaces, seccomp"
	wayLoop       = "bare loop, no jail"
	wayReport     = "cellblock, report"
	wayEnforce    = "cellblock, enforce"
)

// cellblockRun is the command, its state beneath our own directory.
func (b *bench) cellblockRun(mode policy.Mode) (oneShot, error) {
	o, err := b.options(mode)
	return oneShot{argv: []string{b.Program, "run", "--session", o.SessionDir, "--python", b.python, "--mode", string(mode), "-c", printed},
		env: []string{"XDG_STATE_HOME=" + b.state}}, err
}

func (b *bench) cold(ctx context.Context) (*Row, error) {
	r := &Row{Name: "cold", Work: "a one-shot start: the whole command that runs print(42)", Unit: "ms"}
	ways := []entry{oneShot{argv: []string{b.python, "-I", "-c", printed}}.entry(wayBare)}
	add := func(name string, o oneShot, missing *entry) {
		if missing != nil {
			ways = append(ways, *missing)
			return
		}
		ways = append(ways, o.entry(name))
	}
	o, missing := b.bubblewrap()
	add(wayBubblewrap, o, missing)
	for _, program := range []string{"crun", "runc"} {
		o, missing = b.container(program)
		add(program, o, missing)
	}
	o, missing = b.firejail()
	add("firejail", o, missing)
	for _, m := range []struct {
		name string
		mode policy.Mode
	}{{wayReport, policy.Report}, {wayEnforce, policy.Enforce}} {
		o, err := b.cellblockRun(m.mode)
		if err != nil {
			return nil, err
		}
		add(m.name, o, nil)
	}
	var err error
	if r.Ways, err = turns(ctx, b.warm(), b.Rounds, ways); err != nil {
		return nil, err
	}
	r.ratio(wayReport, wayBubblewrap, 1.15, false)
	r.ratio(wayEnforce, wayBubblewrap, 1.15, false)
	return r, nil
}

// lasting makes a way out of a runner that is started by start, and what one round of
// it is.
func (b *bench) lasting(name string, start func() (runner, error), once func(context.Context, runner) (float64, error)) entry {
	r, err := start()
	if err != nil {
		return absent(name, "%v", err)
	}
	return entry{name: name, end: r.end, once: func(ctx context.Context) (float64, error) { return once(ctx, r) }}
}

// beside are the bare loop, and sessions in both modes, that do the same.
func (b *bench) beside(ctx context.Context, once func(context.Context, runner) (float64, error)) []entry {
	return []entry{
		b.lasting(wayLoop, func() (runner, error) { return startLoop(b.python) }, once),
		b.lasting(wayReport, func() (runner, error) { return b.open(ctx, policy.Report, nil) }, once),
		b.lasting(wayEnforce, func() (runner, error) { return b.open(ctx, policy.Enforce, nil) }, once),
	}
}

// often is for work that takes microseconds.
func (b *bench) often() int {
	if b.Quick {
		return 5
	}
	return 25 * b.Rounds
}

func (b *bench) cell(ctx context.Context) (*Row, error) {
	r := &Row{Name: "cell", Work: "the cell 1+1, from request to reply, both ends on one processor", Unit: "µs"}
	once := func(ctx context.Context, in runner) (float64, error) {
		begin := time.Now()
		value, err := in.run(ctx, "1+1")
		took := time.Since(begin)
		if err == nil && value != "2" {
			err = fmt.Errorf("1+1 is %q", value)
		}
		return microseconds(took), err
	}
	const recorded, kernelOfJupyter = "cellblock, enforce, recorded", "ipykernel, jupyter_client"
	return r, pinned(func() error {
		ways := append(b.beside(ctx, once), b.lasting(recorded, func() (runner, error) {
			return b.open(ctx, policy.Enforce, func(o *kernel.Options) { o.Audit = filepath.Join(b.state, "audit", "cell.jsonl") })
		}, once))
		if j, err := startJupyter(); err != nil {
			ways = append(ways, absent(kernelOfJupyter, "%v", err))
		} else {
			ways = append(ways, entry{name: kernelOfJupyter, end: j.end, once: func(context.Context) (float64, error) { return j.once("1+1") }})
		}
		var err error
		r.Ways, err = turns(ctx, 20, b.often(), ways)
		for _, way := range []string{wayReport, wayEnforce, recorded} {
			r.ratio(way, wayLoop, 1.3, false)
		}
		r.ratio(kernelOfJupyter, wayEnforce, 20, true)
		return err
	})
}

// timed runs code that returns the seconds its work took, as it has measured them, and
// returns them as a multiple of unit.
func timed(code string, unit time.Duration) func(context.Context, runner) (float64, error) {
	return func(ctx context.Context, in runner) (float64, error) {
		if _, err := in.run(ctx, code); err != nil {
			return 0, err
		}
		text, err := in.run(ctx, "took")
		if err != nil {
			return 0, err
		}
		seconds, err := strconv.ParseFloat(text, 64)
		return seconds * float64(time.Second) / float64(unit), err
	}
}

func (b *bench) output(ctx context.Context) (*Row, error) {
	size := 50_000_000
	if b.Quick {
		size = 1_000_000
	}
	r := &Row{Name: "print", Work: fmt.Sprintf("a cell that prints %d MB, until its reply", size/1_000_000), Unit: "ms"}
	code := fmt.Sprintf("import sys\nfor _ in range(%d): sys.stdout.write('%s\\n')", size/1000, strings.Repeat("x", 999))
	var grown int64
	ways, err := turns(ctx, 1, max(b.Rounds/2, 2), b.beside(ctx, func(ctx context.Context, in runner) (float64, error) {
		begin := time.Now()
		_, ours := in.(session)
		if ours {
			resetPeak()
		}
		before, _ := statusKB("VmRSS")
		_, err := in.run(ctx, code)
		took := milliseconds(time.Since(begin))
		if peak, e := statusKB("VmHWM"); ours && e == nil {
			grown = max(grown, peak-before)
		}
		return took, err
	}))
	r.Ways = append(ways, Way{Name: "launcher's memory grew, MB", Median: float64(grown) / 1024, P99: float64(grown) / 1024, Samples: 1})
	r.ratio(wayReport, wayLoop, 1.5, false)
	r.ratio(wayEnforce, wayLoop, 1.5, false)
	r.Goals = append(r.Goals, Goal{Text: "launcher's memory grew ≤ 2 MB", Value: float64(grown) / 1024, Limit: 2, Met: grown <= 2048})
	return r, err
}

func (b *bench) compute(ctx context.Context) (*Row, error) {
	count := 2_000_000
	if b.Quick {
		count = 10_000
	}
	r := &Row{Name: "compute", Work: "a cell that only computes, in its own processor time", Unit: "ms"}
	code := fmt.Sprintf("import time\nt = time.process_time(); n = 0\nfor i in range(%d): n = (n * 31 + i) & 0xffff\ntook = time.process_time() - t", count)
	var err error
	r.Ways, err = turns(ctx, b.warm(), b.Rounds, b.beside(ctx, timed(code, time.Millisecond)))
	r.ratio(wayReport, wayLoop, 1.01, false)
	r.ratio(wayEnforce, wayLoop, 1.01, false)
	return r, err
}

func (b *bench) read(ctx context.Context) (*Row, error) {
	count := 100_000
	if b.Quick {
		count = 100
	}
	r := &Row{Name: "read", Work: fmt.Sprintf("%d times open for reading, stat and close", count), Unit: "ms"}
	code := fmt.Sprintf("import os, time\nt = time.perf_counter()\nfor _ in range(%d):\n fd = os.open('/etc/hostname', os.O_RDONLY)\n os.stat('/etc/hostname')\n os.close(fd)\ntook = time.perf_counter() - t", count)
	once := timed(code, time.Millisecond)
	// What the jail alone takes: nobody observes reads, and this says so.
	ways := append(b.beside(ctx, once), b.lasting("cellblock, off", func() (runner, error) { return b.open(ctx, policy.Off, nil) }, once))
	var err error
	r.Ways, err = turns(ctx, b.warm(), b.Rounds/2, ways)
	r.ratio(wayReport, wayLoop, 1.10, false)
	r.ratio(wayEnforce, wayLoop, 1.10, false)
	return r, err
}

const offDenied = "cellblock, off: not observed, refused by Linux"

// denied and allowed name the ways of an open that a mode tells of.
func denied(m policy.Mode) string {
	if m == policy.Report {
		return "cellblock, report: would be denied"
	}
	return "cellblock, " + string(m) + ": denied"
}

func allowed(m policy.Mode) string { return "cellblock, " + string(m) + ": allowed" }

func (b *bench) write(ctx context.Context) (*Row, error) {
	count := 1000
	if b.Quick {
		count = 10
	}
	r := &Row{Name: "write", Work: "one open for writing, with its path, the decision and what is kept of it, both ends on one processor", Unit: "µs"}
	file := filepath.Join(b.dir, "written")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		return nil, err
	}
	at := func(path, fails string) func(context.Context, runner) (float64, error) {
		code := fmt.Sprintf("import os, time\nopen_, flags = os.open, os.O_WRONLY\nt = time.perf_counter()\nfor _ in range(%d):\n%s\ntook = (time.perf_counter() - t) / %d", count, fails, count)
		code = strings.ReplaceAll(code, "PATH", strconv.Quote(path))
		return timed(code, time.Microsecond)
	}
	const plain = " os.close(open_(PATH, flags))"
	const refused = " try: os.close(open_(PATH, flags))\n except OSError: pass"
	return r, pinned(func() error {
		begin := func(mode policy.Mode) func() (runner, error) {
			return func() (runner, error) { return b.open(ctx, mode, nil) }
		}
		hosts := "/etc/hostname"
		ways := []entry{
			b.lasting(wayLoop, func() (runner, error) { return startLoop(b.python) }, at(file, plain)),
			b.lasting("bare loop, told of, nothing looked at", func() (runner, error) { return startToldLoop(ctx, b.python) }, at(file, plain)),
			b.lasting(offDenied, begin(policy.Off), at(hosts, refused)),
			b.lasting(denied(policy.Report), begin(policy.Report), at(hosts, refused)),
			b.lasting(denied(policy.Enforce), begin(policy.Enforce), at(hosts, refused)),
		}
		for _, mode := range []policy.Mode{policy.Off, policy.Report, policy.Enforce} {
			o, err := b.options(mode)
			if err != nil {
				return err
			}
			inside := filepath.Join(o.SessionDir, "f")
			if err := os.WriteFile(inside, nil, 0o666); err != nil {
				return err
			}
			ways = append(ways, b.lasting(allowed(mode), func() (runner, error) {
				return b.open(ctx, mode, func(p *kernel.Options) { p.SessionDir = o.SessionDir })
			}, at(inside, plain)))
		}
		var err error
		r.Ways, err = turns(ctx, b.warm(), b.Rounds, ways)
		for _, mode := range []policy.Mode{policy.Report, policy.Enforce} {
			r.added(denied(mode), offDenied, 10)
			r.added(allowed(mode), allowed(policy.Off), 10)
		}
		return err
	})
}
