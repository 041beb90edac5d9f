package jail

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"sort"
	"testing"
	"time"
)

// BenchmarkColdStart is the time from Start to the end of print(42), beside
// bubblewrap with all namespaces and the bare interpreter.
func BenchmarkColdStart(b *testing.B) {
	command := []string{python, "-I", "-c", "print(42)"}
	b.Run("bare", func(b *testing.B) { medians(b, func() {}, func() { run(b, command...) }) })
	b.Run("bwrap", func(b *testing.B) {
		if _, err := exec.LookPath("bwrap"); err != nil {
			b.Skip("bwrap is not installed")
		}
		medians(b, func() {}, func() {
			run(b, append([]string{"bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"}, command...)...)
		})
	})
	for _, tree := range []TreeAccess{TreeReadOnly, TreeWritable} {
		b.Run("jail "+string(tree), func(b *testing.B) {
			p, err := Compile(testSpec(b, tree, command...), Probe())
			if err != nil {
				b.Fatal(err)
			}
			var last *Process
			// The clearing up of one jail must not slow the next one's start.
			clear := func() {
				if last != nil {
					last.Wait()
				}
			}
			medians(b, clear, func() {
				r, w, _ := os.Pipe()
				process, err := Start(context.Background(), p, StartOptions{Stdout: w})
				w.Close()
				if err != nil {
					b.Fatal(err)
				}
				var out bytes.Buffer
				_, _ = out.ReadFrom(r)
				r.Close()
				if out.String() != "42\n" {
					b.Fatalf("printed %q", out.String())
				}
				last = process
			})
			last.Wait()
		})
	}
}

func run(b *testing.B, argv ...string) {
	if out, err := exec.Command(argv[0], argv[1:]...).Output(); err != nil || string(out) != "42\n" {
		b.Fatalf("%v: %q, %v", argv, out, err)
	}
}

// medians reports the median, since a few slow rounds say nothing.
func medians(b *testing.B, before, f func()) {
	f()
	var all []time.Duration
	for b.Loop() {
		before()
		begin := time.Now()
		f()
		all = append(all, time.Since(begin))
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "median-ms")
}
