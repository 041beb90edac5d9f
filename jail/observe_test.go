package jail

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"cellblock/jail/observe"
	"cellblock/jail/plan"
)

// observedGuest writes inside and outside whenever it is told to, and prints how
// that went.
const observedGuest = `import errno, os, subprocess, sys
def trying(f, *args):
    try: f(*args)
    except OSError as problem: return errno.errorcode[problem.errno]
    return "done"
def write(path): os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
for line in sys.stdin:
    print(trying(write, "in"), trying(write, sys.argv[1]), trying(os.stat, "/etc/passwd"), trying(os.close, os.open("/etc/passwd", 0)),
          trying(os.execv, "/bin/true", ["true"]) if line == "exec\n" else "", flush=True)`

// TestObserverThatEnds shows what a jail is without its observer: nothing that it
// would have heard of happens, nothing waits for it, and reading goes on.
func TestObserverThatEnds(t *testing.T) {
	for _, tree := range []TreeAccess{TreeReadOnly, TreeWritable} {
		t.Run(string(tree), func(t *testing.T) {
			outside := filepath.Join(t.TempDir(), "outside")
			spec := testSpec(t, tree, python, "-I", "-c", observedGuest, outside)
			p, err := Compile(spec, Probe())
			if err != nil {
				t.Fatal(err)
			}
			inR, inW := pipe(t)
			outR, outW := pipe(t)
			var mu sync.Mutex
			var told []string
			process, err := Start(context.Background(), p, StartOptions{Stdin: inR, Stdout: outW, Told: func(e observe.Event) {
				mu.Lock()
				defer mu.Unlock()
				for _, op := range e.Ops {
					told = append(told, op.Kind+" "+op.Path)
				}
			}})
			inR.Close()
			outW.Close()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { process.Kill(); <-process.Done() }()
			lines := bufio.NewScanner(outR)
			ask := func(what string) string {
				fmt.Fprintln(inW, what)
				if !lines.Scan() {
					t.Fatal("no answer")
				}
				return lines.Text()
			}
			// The tree has no directory of a test inside: /tmp is the jail's own.
			if got, want := ask("write"), "done ENOENT done done"; strings.TrimSpace(got) != want {
				t.Errorf("observed: %q, want %q", got, want)
			}
			if hears, err := process.Settle(); !hears || err != nil {
				t.Fatal(hears, err)
			}
			mu.Lock()
			if want := "write " + filepath.Join(spec.Dir, "in"); !slices.Contains(told, want) {
				t.Errorf("told %q, want %q among them", told, want)
			}
			mu.Unlock()
			process.observer.Stop()
			if got, want := ask("write"), "ENOSYS ENOSYS done done"; strings.TrimSpace(got) != want {
				t.Errorf("without its observer: %q, want %q", got, want)
			}
			if got, want := ask("exec"), "ENOSYS ENOSYS done done ENOSYS"; strings.TrimSpace(got) != want {
				t.Errorf("without its observer: %q, want %q", got, want)
			}
			inW.Close()
			if exit := process.Wait(); exit.Code != 0 || exit.Signal != 0 {
				t.Errorf("%+v", exit)
			}
		})
	}
}

// TestObserverDelaysNoEnd kills a jail whose calls wait for an observer that hangs.
func TestObserverDelaysNoEnd(t *testing.T) {
	spec := testSpec(t, TreeReadOnly, python, "-I", "-c", `import threading
for i in range(8): threading.Thread(target=lambda i=i: open(f"f{i}", "w")).start()`)
	p, err := Compile(spec, Probe())
	if err != nil {
		t.Fatal(err)
	}
	asked, release := make(chan string, 100), make(chan struct{})
	process, err := Start(context.Background(), p, StartOptions{Told: func(e observe.Event) {
		if filepath.Dir(e.Ops[0].Path) == spec.Dir {
			asked <- e.Ops[0].Path
			<-release
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	process.Kill()
	// Nothing of it runs, although nobody has answered.
	for alive(process.StagePid()) {
		if waited, _ := os.ReadFile("/proc/" + fmt.Sprint(process.StagePid()) + "/stat"); strings.Contains(string(waited), ") Z ") {
			break
		}
	}
	close(release)
	<-process.Done()
}

// TestBlindObserverEndsTheStart plays a stage whose filter tells of nothing.
func TestBlindObserverEndsTheStart(t *testing.T) {
	p, err := Compile(testSpec(t, TreeReadOnly, "/bin/true"), Probe())
	if err != nil {
		t.Fatal(err)
	}
	p.Observer = []plan.Insn{{Code: 6, K: 0x7fff0000}} // allow
	process, err := Start(context.Background(), p, StartOptions{})
	var witness *WitnessError
	if err == nil {
		process.Kill()
		<-process.Done()
	}
	if !errors.As(err, &witness) || witness.Check.Name != "told" {
		t.Errorf("%v, want the check %q to end the start", err, "told")
	}
}
