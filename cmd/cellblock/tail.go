package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"cellblock/policy/audit"
)

func newAuditTail(c *console) *cobra.Command {
	var (
		follow, asJSON bool
		lines          int
	)
	cmd := &cobra.Command{
		Use:   "tail [-f] [FILE]",
		Short: "Print the last records of a session, by default the newest one's",
		Args:  atMost(1),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is written, until a Ctrl-C")
	cmd.Flags().IntVarP(&lines, "lines", "n", 10, "how many records")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the records as they are")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		var path string
		if len(args) == 1 {
			path = args[0]
		} else {
			var err error
			if path, err = newest(); err != nil {
				return err
			}
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer cancel()
		t := &tail{c: c, asJSON: asJSON, keep: max(lines, 0)}
		var in io.Reader = f
		if follow {
			in = &follower{f, ctx, t.flush}
		}
		return t.run(in)
	}
	return cmd
}

// tail prints the last records that there are, and then every one that comes.
type tail struct {
	c      *console
	asJSON bool
	keep   int
	last   []string
	live   bool
}

func (t *tail) run(in io.Reader) error {
	for e, err := range audit.Read(in) {
		switch {
		case errors.Is(err, audit.ErrNoRecord), errors.Is(err, audit.ErrLineTooLong), errors.Is(err, audit.ErrTorn):
			t.print(fmt.Sprintf("line %d: %v", e.Line, err))
		case err != nil:
			return err
		case t.asJSON:
			t.print(string(e.Raw))
		default:
			t.print(recordLine(e.Record))
		}
	}
	t.flush()
	return nil
}

func (t *tail) print(line string) {
	if t.live {
		t.c.printOut(line + "\n")
		return
	}
	t.last = append(t.last, line)
	if len(t.last) > t.keep {
		t.last = t.last[1:]
	}
}

// flush prints what was kept; from then on everything is printed at once.
func (t *tail) flush() {
	for _, line := range t.last {
		t.c.printOut(line + "\n")
	}
	t.last, t.live = nil, true
}

// follower reads a file that grows, until its context ends.
type follower struct {
	file *os.File
	ctx  context.Context
	idle func() // called at the end of what there is
}

// pollEvery is how long tail waits before it looks for more.
const pollEvery = 200 * time.Millisecond

func (f *follower) Read(b []byte) (int, error) {
	for {
		n, err := f.file.Read(b)
		if n > 0 || err != io.EOF {
			return n, err
		}
		f.idle()
		select {
		case <-f.ctx.Done():
			return 0, io.EOF
		case <-time.After(pollEvery):
		}
	}
}

// recordLine is a record as a person reads it.
func recordLine(r audit.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Time.Local().Format("2006-01-02 15:04:05.000"), named(r.Op))
	if r.Cell > 0 {
		fmt.Fprintf(&b, " cell %d", r.Cell)
	}
	if r.Target != "" {
		fmt.Fprintf(&b, " %s", named(r.Target))
	}
	if r.Decision != "" {
		fmt.Fprintf(&b, ": %s", named(r.Decision))
	}
	if r.Times() > 1 {
		fmt.Fprintf(&b, ", %d times", r.Times())
	}
	if r.Reason != "" || r.Rule != "" {
		fmt.Fprintf(&b, " (%s)", named(strings.Join(slices.DeleteFunc([]string{r.Rule, r.Reason}, func(s string) bool { return s == "" }), ": ")))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Facts)) {
		switch v := r.Facts[name].(type) {
		case string:
			fmt.Fprintf(&b, " %s=%s", named(name), named(v))
		case json.Number, bool:
			fmt.Fprintf(&b, " %s=%v", name, v)
		case []any:
			fmt.Fprintf(&b, " %s: %d", name, len(v))
		}
	}
	return b.String()
}
