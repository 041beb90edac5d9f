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

// TestALateLookAsksNoOtherCell: what a cell has brought has its own worker asked for lines
// that it holds back, once, and never while the next cell runs.
func TestALateLookAsksNoOtherCell(t *testing.T) {
	out := newOutput(-1, -1) // nobody reads beside the test
	out.pair = &pipes{ends: [2]int{-1, -1}}
	asked := 0
	out.pressed(func() { asked++ })
	dir := t.TempDir()
	cell := func(number, bytes int) {
		out.begin(newCellOutput(100, dir, number, new(room), nil), "")
		out.put(out.pair, 0, make([]byte, bytes))
	}
	cell(1, floodBytes)
	out.quiet()
	out.quiet()
	if asked != 1 {
		t.Errorf("a cell with a flood is asked %d times, want once", asked)
	}
	cell(2, floodBytes)
	out.finish()
	out.quiet() // between cells no worker holds anything back
	cell(3, 10)
	out.quiet()
	if asked != 1 || out.flood() {
		t.Errorf("asked %d times in all: a cell pays for the one before", asked)
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
