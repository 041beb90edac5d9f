package jail

import (
	"context"
	"os"
	"testing"

	"cellblock/jail/observe"
)

// BenchmarkObservedCall prints what an open for writing costs inside, with nobody
// told and with somebody told of it.
func BenchmarkObservedCall(b *testing.B) {
	for _, c := range []struct {
		name    string
		observe bool
		told    func(observe.Event)
	}{{"unobserved", false, nil}, {"observed", true, func(observe.Event) {}}} {
		b.Run(c.name, func(b *testing.B) {
			spec := testSpec(b, TreeReadOnly, python, "-I", "-c", `import os, time
def calls(flags):
    best = []
    for _ in range(7):
        a = time.perf_counter()
        for _ in range(10000): os.close(os.open("f", flags))
        best.append((time.perf_counter() - a) / 10000 * 1e6)
    return sorted(best)[3]
print(f"write {calls(os.O_WRONLY | os.O_CREAT):.2f} µs, read {calls(os.O_RDONLY):.2f} µs", flush=True)`)
			spec.Observe = c.observe
			p, err := Compile(spec, Probe())
			if err != nil {
				b.Fatal(err)
			}
			process, err := Start(context.Background(), p, StartOptions{Stdout: os.Stderr, Told: c.told})
			if err != nil {
				b.Fatal(err)
			}
			process.Wait()
		})
	}
}
