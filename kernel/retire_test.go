package kernel

import (
	"strings"
	"testing"
	"time"
)

// TestARetiredSessionSaysSoUntilItIsRebuilt: it never goes on in a fresh interpreter
// by itself; without the option it does, and says that state was lost.
func TestARetiredSessionSaysSoUntilItIsRebuilt(t *testing.T) {
	for name, c := range map[string]struct {
		end func(t *testing.T, s *Session)
		why string
	}{
		"a crash": {func(t *testing.T, s *Session) { run(t, s, "import os; os._exit(7)") }, "(7)"},
		"the time limit": {func(t *testing.T, s *Session) {
			s.Call(t.Context(), Call{Code: "import time; time.sleep(600)", Timeout: 100 * time.Millisecond})
		}, "at the time limit"},
		"an interrupt that is not obeyed": {func(t *testing.T, s *Session) {
			r := s.Run(t.Context(), Call{Code: "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('up', flush=True)\nwhile True: pass"})
			for {
				step, err := r.Step(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if step.State == Finished {
					return
				}
				if len(step.Events) > 0 && step.Events[0].Kind == EventOutput {
					go s.Interrupt()
				}
			}
		}, "by the host"},
		"a death between two calls": {func(t *testing.T, s *Session) {
			run(t, s, "import os, threading; threading.Timer(0.05, os._exit, [9]).start()")
			s.mu.Lock()
			w := s.worker
			s.mu.Unlock()
			<-w.gone
		}, "(9)"},
	} {
		tiers(t, Options{Retire: true, KeepDefinitions: true}, func(t *testing.T, s *Session) {
			run(t, s, "x = list()\ndef f(): return 1")
			generation := s.Info().Generation
			c.end(t, s)
			for range 2 {
				r := run(t, s, "1")
				if e := r.Details.Error; e == nil || e.Name != KernelRetired || !strings.Contains(e.Value, c.why) || !strings.Contains(e.Value, "until a reset") || !r.Details.StateLost {
					t.Errorf("%s: %s", name, r.Text())
				}
			}
			if err := s.Start(t.Context()); err == nil || s.Info().Generation != generation {
				t.Errorf("%s: started: %v", name, err)
			}
			if r := s.Call(t.Context(), Call{Reset: true}); r.IsError || !strings.HasSuffix(r.Text(), resetText) {
				t.Errorf("%s: rebuilt: %s", name, r.Text())
			}
			// What was kept is there again; the rest is not.
			if r := run(t, s, "'x' in globals(), f()"); r.Text() != "(False, 1)" {
				t.Errorf("%s: after it: %s", name, r.Text())
			}
		})
	}
}
