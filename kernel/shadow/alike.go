package shadow

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// maxPair is the size of the largest file that is read to find out whether it was
	// renamed.
	maxPair = 64 << 20
	// maxPairing bounds what is read for that of a layer and the host in all: a session
	// may make any number of files with the size of one that it removes, and who ends
	// it, or looks at its layer, waits for this. It takes about a second. What is left
	// is told as created and deleted, which it is.
	maxPairing = 256 << 20
	// firstPart is how much is compared of files of one size before they are read whole.
	firstPart = 16 << 10
	// block is what is zero or not as a whole, and the price of a look at a file.
	block = 4 << 10
)

// twins are files that are alike as far as is known: those that are gone, and the new.
type twins struct{ gone, made []int }

// alike pairs files that are gone with new ones of the same bytes, small files first:
// of these more are paired for what may be read.
func (p *pairing) alike() {
	bySize := map[int64]*twins{}
	for i, c := range p.changes {
		if c.Kind == Deleted && c.Old.Type == "file" && c.Old.Size > 0 && c.Old.Size <= maxPair && !p.gone[c.where] {
			t := bySize[c.Old.Size]
			if t == nil {
				t = &twins{}
				bySize[c.Old.Size] = t
			}
			t.gone = append(t.gone, i)
		}
	}
	for i, c := range p.changes {
		if c.Kind == Created && c.New.Type == "file" {
			if t := bySize[c.New.Size]; t != nil {
				t.made = append(t.made, i)
			}
		}
	}
	for _, size := range slices.Sorted(maps.Keys(bySize)) {
		for _, t := range p.split(*bySize[size], size, min(size, firstPart)) {
			if size <= firstPart {
				p.match(t)
				continue
			}
			for _, t := range p.split(t, size, size) {
				p.match(t)
			}
		}
	}
}

func (p *pairing) match(t twins) {
	for n := range min(len(t.gone), len(t.made)) {
		p.renamed(t.made[n], t.gone[n])
	}
}

// split looks at the first bytes of files of one size, once at each, and tells apart
// what differs in them. Files that have no counterpart are left out.
func (p *pairing) split(t twins, size, length int64) (all []twins) {
	if len(t.made) == 0 {
		return nil
	}
	groups := map[[sha256.Size]byte]int{}
	for _, i := range t.gone {
		if sum, ok := p.read.sum(p.changes[i].where, size, length); ok {
			n, known := groups[sum]
			if !known {
				n, all = len(all), append(all, twins{})
				groups[sum] = n
			}
			all[n].gone = append(all[n].gone, i)
		}
	}
	if len(all) == 0 {
		return nil
	}
	for _, i := range t.made {
		c := p.changes[i]
		if sum, ok := p.read.sum(path.Join(p.layer.Upper(c.tree), c.name), size, length); ok {
			if n, known := groups[sum]; known {
				all[n].made = append(all[n].made, i)
			}
		}
	}
	return slices.DeleteFunc(all, func(t twins) bool { return len(t.made) == 0 })
}

// reading reads files until it has read enough.
type reading struct {
	left int64 // bytes that may still be read
}

// take is false when n bytes are too many.
func (r *reading) take(n int64) bool {
	if r.left < n {
		return false
	}
	r.left -= n
	return true
}

// sum is a digest of the first bytes of a regular file of that size, by a path without
// symbolic links: of the blocks that are not zero, and where they lie. So holes need
// not be read, and are the same as zeros. Not ok for a file that cannot be read, is of
// another size by now, or would be too much.
func (r *reading) sum(p string, size, length int64) (sum [sha256.Size]byte, ok bool) {
	if !r.take(block) {
		return sum, false
	}
	dir, err := hostDir(path.Dir(p))
	if err != nil {
		return sum, false
	}
	defer unix.Close(dir)
	file, err := openRegular(dir, path.Base(p))
	if err != nil {
		return sum, false
	}
	defer file.Close()
	if now, err := file.Stat(); err != nil || now.Size() != size {
		return sum, false
	}
	h := sha256.New()
	var zero, buf [block]byte
	for at := int64(0); at < length; {
		data, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= length {
			break // a hole to the end
		}
		if err != nil {
			return sum, false
		}
		hole, err := unix.Seek(int(file.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return sum, false
		}
		// Data may begin and end within a block of ours; what it lacks of it is zero.
		for at = data - data%block; at < min(max(hole, data+1), length); at += block {
			part := buf[:min(block, length-at)]
			if !r.take(int64(len(part))) {
				return sum, false
			}
			if _, err := file.ReadAt(part, at); err != nil {
				return sum, false
			}
			if !bytes.Equal(part, zero[:len(part)]) {
				h.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
				h.Write(part)
			}
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), true
}
