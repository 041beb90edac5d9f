package shadow

import (
	"fmt"
	"maps"
	"os"
	"path"
	"testing"
)

// paired is the layer's difference with what may be read to pair files, what was read,
// and how many changes there are of each kind. Whatever is said to be renamed has the
// bytes of the file of which that is said.
func (h *host) paired(t *testing.T, may int64) (d Diff, read int64, kinds map[Kind]int) {
	t.Helper()
	r := reading{left: may}
	d, err := h.layer.diff(&r)
	if err != nil || len(d.Unread) > 0 {
		t.Fatal(err, d.Unread)
	}
	kinds = map[Kind]int{}
	for _, c := range d.Changes {
		kinds[c.Kind]++
		if c.Kind != Renamed {
			continue
		}
		was, err := os.ReadFile(c.From)
		if err != nil {
			t.Fatal(err)
		}
		is, err := os.ReadFile(path.Join(h.layer.Upper(c.tree), c.name))
		if err != nil {
			t.Fatal(err)
		}
		if string(was) != string(is) {
			t.Errorf("%v: it has other bytes", c)
		}
	}
	return d, may - r.left, kinds
}

// inPython is a script of a session that writes many files.
func inPython(code string) string { return "python3 - <<'END'\n" + code + "\nEND\n" }

// pairings are what sessions do, with what is told of it, and the most that is to be
// read for that: of each file its beginning once, and once the whole, without holes.
var pairings = []struct {
	name, fill, change string
	want               map[Kind]int
	most               int64
}{
	{"one size, of which some are alike",
		inPython(`
for i in range(20):
    open(f"old{i}", "wb").write(b"head" * 10_000 + b"%06d" % i)`),
		inPython(`
import os
for i in range(20):
    os.remove(f"old{i}")
for i in range(10, 210):
    open(f"new{i}", "wb").write(b"head" * 10_000 + b"%06d" % i)`),
		map[Kind]int{Renamed: 10, Created: 190, Deleted: 10},
		220 * (2*block + firstPart + 40_006)},
	{"one size, and different from the beginning",
		inPython(`
for i in range(20):
    open(f"old{i}", "wb").write(b"%06d" % i + b"x" * 1_000_000)`),
		inPython(`
import os
for i in range(20):
    os.remove(f"old{i}")
for i in range(20, 60):
    open(f"new{i}", "wb").write(b"%06d" % i + b"x" * 1_000_000)`),
		map[Kind]int{Created: 40, Deleted: 20},
		60 * (block + firstPart)},
	{"one size, and small",
		inPython(`
for i in range(200):
    open(f"old{i}", "wb").write(b"%06d" % i)`),
		inPython(`
import os
for i in range(200):
    os.remove(f"old{i}")
for i in range(100, 2100):
    open(f"new{i}", "wb").write(b"%06d" % i)`),
		map[Kind]int{Renamed: 100, Created: 1900, Deleted: 100},
		2200 * (block + 6)},
	{"other sizes",
		`head -c 100000 /dev/zero >old`,
		`rm old; head -c 100001 /dev/zero >new`,
		map[Kind]int{Created: 1, Deleted: 1},
		0},
	{"holes",
		`truncate -s 8M old; printf end >>old; head -c 1000000 /dev/zero >zeros; truncate -s 3M hole; printf mid | dd of=hole conv=notrunc bs=1 seek=1000001 status=none`,
		inPython(`
import os
for name in "old", "zeros", "hole":
    os.remove(name)
for i in range(60):
    with open(f"new{i}", "wb") as f:
        f.truncate(8 << 20)
        f.seek(8 << 20)
        f.write(b"end" if i == 7 else b"%03d" % i)
with open("no-zeros", "wb") as f:
    f.truncate(1_000_000)
with open("filled", "wb") as f:
    f.write(bytes(1_000_001) + b"mid" + bytes((3 << 20) - 1_000_004))
with open("moved", "wb") as f:
    f.write(bytes(1_000_000) + b"mid" + bytes((3 << 20) - 1_000_003))`),
		map[Kind]int{Renamed: 3, Created: 60},
		65*4*block + 2*(3<<20) + 1_000_000 + 5*firstPart},
	{"nothing is gone",
		`printf x >file`, inPython(`
for i in range(100):
    open(f"new{i}", "wb").write(b"x")`),
		map[Kind]int{Created: 100},
		0},
	{"each of several that are alike",
		`for n in 1 2 3; do printf same >old$n; done`,
		`rm old1 old2 old3; for n in 1 2 3 4 5; do printf same >new$n; done`,
		map[Kind]int{Renamed: 3, Created: 2},
		8 * (block + 4)},
}

func TestPairingReadsEachFileOnce(t *testing.T) {
	for _, c := range pairings {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, c.fill, c.change)
			_, read, kinds := h.paired(t, maxPairing)
			if !maps.Equal(kinds, c.want) {
				t.Errorf("%v, want %v", kinds, c.want)
			}
			if read > c.most {
				t.Errorf("%d bytes were read, of files for which %d are enough", read, c.most)
			}
		})
	}
}

// TestPairingEndsWhereItHasReadEnough: what is told then is true as well, of each file,
// and the smallest are paired first.
func TestPairingEndsWhereItHasReadEnough(t *testing.T) {
	h := newHost(t, inPython(`
for i in range(40):
    open(f"old{i:02}", "wb").write(b"%06d" % i * (1 + i // 2) * 1000)`), inPython(`
import os
for i in range(40):
    body = open(f"old{i:02}", "rb").read()
    os.remove(f"old{i:02}")
    open(f"new{i:02}", "wb").write(body)`))
	for may, least := range map[int64]int{0: 0, block: 0, 100_000: 2, 1 << 20: 6, maxPairing: 40} {
		t.Run(fmt.Sprint(may), func(t *testing.T) {
			d, read, kinds := h.paired(t, may)
			if read > may {
				t.Errorf("%d bytes were read", read)
			}
			n := kinds[Renamed]
			if n < least || may != maxPairing && n == 40 || kinds[Created] != 40-n || kinds[Deleted] != 40-n || len(d.Changes) != 80-n {
				t.Errorf("%v, want %d renamed and the rest created and deleted", kinds, least)
			}
			var largest, smallest int64 = 0, 1 << 20
			for _, c := range d.Changes {
				if c.Kind == Renamed {
					largest = max(largest, c.New.Size)
				} else if c.Kind == Created {
					smallest = min(smallest, c.New.Size)
				}
			}
			if largest > smallest {
				t.Errorf("one of %d bytes was paired, and one of %d was not", largest, smallest)
			}
		})
	}
}
