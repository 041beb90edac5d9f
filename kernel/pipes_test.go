package kernel

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// A worker that keeps the pipes of every cell open costs the launcher a bounded
// number of descriptors, and none after the end.
func TestOldPipesAreBounded(t *testing.T) {
	before := descriptors(t)
	out := newOutput(-1, -1)
	var held []*os.File
	for range 3 * maxPairs {
		ends, err := out.open()
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, ends[0], ends[1])
	}
	if mine := descriptors(t) - before - len(held); mine > 2*(maxPairs+1)+1 { // and one to wait for them all
		t.Errorf("%d descriptors for %d pairs", mine, 3*maxPairs)
	}
	if _, err := held[0].Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("writing to the oldest pair: %v, want EPIPE", err)
	}
	if _, err := held[len(held)-1].Write([]byte("x")); err != nil {
		t.Errorf("writing to the newest pair: %v", err)
	}
	out.close()
	if mine := descriptors(t) - before - len(held); mine != 0 {
		t.Errorf("%d descriptors are left", mine)
	}
	for _, end := range held {
		end.Close()
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	found, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}
