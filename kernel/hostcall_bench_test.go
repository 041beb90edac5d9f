package kernel

import (
	"testing"

	"cellblock/kernel/host"
)

// BenchmarkHostCall is the round trip of a host call from a cell to a tool of the
// launcher's and back; the cell's own start is spread over all of them.
func BenchmarkHostCall(b *testing.B) {
	doc, err := BuiltInPolicy("default")
	if err != nil {
		b.Fatal(err)
	}
	doc.Tools.Default = "allow"
	s, err := Open(Options{SessionDir: b.TempDir(), PythonBin: "/usr/bin/python3", SkillRoots: []string{}, Tier: TierProcess, Policy: &doc,
		Tools: []host.Tool{{Name: "t.echo", Do: echo}}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	s.Call(b.Context(), Call{Code: "def calls(n):\n    for i in range(n): t.echo(n=1)\ncalls(100)"})
	const many = 1000
	b.ResetTimer()
	for range b.N/many + 1 {
		if r := s.Call(b.Context(), Call{Code: "calls(1000)"}); r.IsError {
			b.Fatal(r.Text())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64((b.N/many+1)*many), "µs/call")
}
