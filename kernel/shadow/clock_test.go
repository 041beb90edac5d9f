package shadow

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// TestCommitAfterTheClockWasSetBack: what the host changed has an earlier time than the
// layer then, and is kept off all the same. What it had before is not doubted.
func TestCommitAfterTheClockWasSetBack(t *testing.T) {
	for _, c := range later {
		if c.name == "renamed and changed" && os.Geteuid() != 0 {
			c.path = "before"
		}
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, manyFiles, c.change)
			shell(t, h.dir, c.host)
			h.layer.Born = h.layer.Born.Add(time.Hour) // it was born an hour from now
			before := census(t, h.dir)
			res, err := h.layer.Commit(CommitOptions{})
			if !errors.Is(err, ErrRefused) || !strings.Contains(res.Refused[0].Why, "has been set back") {
				t.Fatalf("%v, done %v, refused %v", err, res.Done, res.Refused)
			}
			differ(t, census(t, h.dir), before)
		})
	}
	t.Run("nothing changed", func(t *testing.T) {
		h := newHost(t, manyFiles+"sleep 0.3", "printf mine >>file; rm -r tree; mv before after")
		h.layer.Born = h.layer.Born.Add(time.Hour)
		if res, err := h.layer.Commit(CommitOptions{}); err != nil {
			t.Fatalf("%v, refused %v", err, res.Refused)
		}
		h.is(t, h.saw)
	})
	t.Run("set back while the machine was off", func(t *testing.T) {
		h := newHost(t, manyFiles, "printf mine >>file")
		shell(t, h.dir, "printf theirs >>file")
		h.layer.Born, h.layer.Since.Boot = h.layer.Born.Add(time.Hour), "another"
		if res, err := h.layer.Commit(CommitOptions{}); !errors.Is(err, ErrRefused) {
			t.Fatalf("%v, done %v", err, res.Done)
		}
	})
}
