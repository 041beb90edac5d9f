package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// Bounds of what a reply carries of a cell's output.
const (
	headChars      = 8192  // characters kept of a stream's beginning once it is cut
	tailChars      = 4096  // and of its end
	scopeBytes     = 65536 // UTF-8 bytes of all records of a cell
	scopeRecords   = 256
	backgroundRune = 4096 // characters of one background record

	backgroundShown = 8192    // bytes of them in the text that a model reads, and the record that goes beyond
	maxSpill        = 1 << 30 // bytes of one full-output file, where the policy does not say less
)

// decoder turns a stream of bytes into valid UTF-8: a character cut in two by a
// read is put together, a byte that is none becomes U+FFFD.
type decoder struct {
	rest [utf8.UTFMax]byte
	n    int
}

// decode returns the text of b, in b's memory where it can.
func (d *decoder) decode(b []byte, last bool) []byte {
	if d.n == 0 && ascii(b) {
		return b
	}
	if d.n > 0 {
		b = append(append(make([]byte, 0, d.n+len(b)), d.rest[:d.n]...), b...)
		d.n = 0
	}
	if !last {
		kept := whole(b)
		d.n = copy(d.rest[:], b[len(kept):])
		b = kept
	}
	if utf8.Valid(b) {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		out = utf8.AppendRune(out, r)
		b = b[size:]
	}
	return out
}

// ascii says whether each byte is a character of its own. Most output is so, and to
// find out eight bytes at a time costs less than to count characters.
func ascii(b []byte) bool {
	const high = 0x8080808080808080
	for ; len(b) >= 8; b = b[8:] {
		if binary.NativeEndian.Uint64(b)&high != 0 {
			return false
		}
	}
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// characters counts those of valid UTF-8.
func characters(b []byte) int {
	if ascii(b) {
		return len(b)
	}
	return utf8.RuneCount(b)
}

// capped keeps a text of at most limit characters, or the head and the tail of
// a longer one.
type capped struct {
	limit int
	chars int    // of the whole text
	text  []byte // all of it while chars <= limit, then its head
	tail  []byte // the newest bytes once it was cut
	cut   bool
}

// shares are the characters of head and tail under a limit: with a small limit
// they shrink in proportion, so that the result never exceeds what was cut.
func shares(limit int) (head, tail int) {
	if limit >= headChars+tailChars {
		return headChars, tailChars
	}
	if limit < markerRoom {
		return limit, 0
	}
	head = limit * headChars / (headChars + tailChars)
	return head, limit - head
}

// markerRoom is more than the line between head and tail can need. A smaller
// limit leaves the head alone.
const markerRoom = 64

func (c *capped) add(s []byte) {
	c.chars += characters(s)
	if !c.cut && c.chars <= c.limit {
		c.text = append(c.text, s...)
		return
	}
	head, tail := shares(c.limit)
	if !c.cut {
		c.cut = true
		all := append(c.text, s...)
		c.text = append([]byte(nil), prefix(all, head)...)
		c.tail = append([]byte(nil), suffix(all, tail)...)
		return
	}
	if most := utf8.UTFMax * tail; len(s) > most {
		// What is older than that is not in the tail.
		for s = s[len(s)-most:]; len(s) > 0 && !utf8.RuneStart(s[0]); {
			s = s[1:]
		}
		c.tail = c.tail[:0]
	}
	c.tail = append(c.tail, s...)
	if len(c.tail) > 8*utf8.UTFMax*(tail+1) {
		c.tail = append(c.tail[:0], suffix(c.tail, tail)...)
	}
}

func (c *capped) String() string {
	if !c.cut {
		return string(c.text)
	}
	if c.limit < markerRoom {
		return string(c.text)
	}
	marker := fmt.Sprintf("\n...[truncated %d chars]...\n", c.chars)
	head, tail := shares(c.limit)
	if over := head + len(marker) + tail - c.chars; over > 0 {
		// Just past the limit the marker would make it longer than it was.
		fromTail := over * tail / (head + tail)
		head, tail = head-(over-fromTail), tail-fromTail
	}
	return string(prefix(c.text, head)) + marker + string(suffix(c.tail, tail))
}

// prefix is the first n characters of valid UTF-8.
func prefix(b []byte, n int) []byte {
	at := 0
	for ; n > 0 && at < len(b); n-- {
		_, size := utf8.DecodeRune(b[at:])
		at += size
	}
	return b[:at]
}

// suffix is the last n characters of valid UTF-8.
func suffix(b []byte, n int) []byte {
	at := len(b)
	for ; n > 0 && at > 0; n-- {
		_, size := utf8.DecodeLastRune(b[:at])
		at -= size
	}
	return b[at:]
}

// The streams of a worker, as indexes.
const (
	stdout = iota
	stderr
)

// streams are their names.
var streams = [2]string{"stdout", "stderr"}

// cellOutput is what one cell has written, within bounds, and the file with all
// of it once a stream was cut. Its user holds the lock of the pipes.
type cellOutput struct {
	text      [2]capped
	decoders  [2]decoder
	records   []piece
	bytes     int // in records
	truncated int64
	early     []byte // what the file will begin with
	dir       string
	cell      int
	file      *os.File
	room      *room
	spilled   int64 // bytes in the file
	leftOut   int64 // bytes that it should hold as well
	spillErr  error
	live      func(stream, text string)
}

// piece is what came of one stream before the other one had its turn.
type piece struct {
	stream int
	text   []byte
}

func newCellOutput(limit int, dir string, cell int, room *room, live func(stream, text string)) *cellOutput {
	return &cellOutput{text: [2]capped{{limit: limit}, {limit: limit}}, dir: dir, cell: cell, room: room, live: live}
}

// write takes what a stream had to read; b is the reader's and is used again.
func (o *cellOutput) write(stream int, b []byte, last bool) {
	text := o.decoders[stream].decode(b, last)
	if len(text) == 0 {
		return
	}
	o.text[stream].add(text)
	o.spill(text)
	o.record(stream, text)
	if o.live != nil {
		o.live(streams[stream], string(text))
	}
}

// room is what the full-output files of one generation may take, in bytes.
type room struct {
	limit int64 // 0: none
	taken int64
}

func (r *room) left() int64 {
	if r.limit == 0 {
		return maxSpill
	}
	return max(r.limit-r.taken, 0)
}

func (o *cellOutput) spill(text []byte) {
	if o.leftOut > 0 || o.spillErr != nil {
		o.leftOut += int64(len(text))
		return
	}
	if o.file == nil {
		o.early = append(o.early, text...)
		if !o.text[stdout].cut && !o.text[stderr].cut {
			return
		}
		text, o.early = o.early, nil
		if o.room.left() == 0 {
			o.leftOut = int64(len(text))
			return
		}
		// The directory is the launcher's alone; a name that exists is not ours.
		o.file, o.spillErr = os.OpenFile(o.path(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if o.spillErr != nil {
			return
		}
	}
	kept := text
	if left := min(maxSpill-o.spilled, o.room.left()); int64(len(kept)) > left {
		kept = whole(kept[:left])
	}
	o.leftOut = int64(len(text) - len(kept))
	n, err := o.file.Write(kept)
	o.spilled += int64(n)
	o.room.taken += int64(n)
	if err != nil {
		// A part is no full output, and the disk may be full: its room is given back.
		o.spillErr = errors.Join(err, o.file.Close(), os.Remove(o.path()))
		o.room.taken -= o.spilled
		o.file = nil
	}
}

func (o *cellOutput) path() string { return filepath.Join(o.dir, fmt.Sprintf("cell-%d.out", o.cell)) }

// whole is b, cut from valid UTF-8, without the part of a character at its end.
func whole(b []byte) []byte {
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		if c := b[len(b)-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-back:]) {
				return b[:len(b)-back]
			}
			break
		}
	}
	return b
}

// notes say what of the output is nowhere.
func (o *cellOutput) notes() []string {
	switch {
	case o.spillErr != nil:
		return []string{"full output could not be kept: " + o.spillErr.Error()}
	case o.leftOut > 0 && o.spilled >= maxSpill-utf8.UTFMax:
		return []string{fmt.Sprintf("full output: %d bytes left out: one file holds %s", o.leftOut, bytesText(maxSpill))}
	case o.leftOut > 0:
		return []string{fmt.Sprintf("full output: %d bytes left out: limit output %s, of all cells since the worker's start, is reached", o.leftOut, bytesText(o.room.limit))}
	}
	return nil
}

func (o *cellOutput) record(stream int, text []byte) {
	kept := text
	if left := scopeBytes - o.bytes; len(kept) > left {
		kept = whole(kept[:left])
	}
	switch last := len(o.records) - 1; {
	case len(kept) == 0:
	case last >= 0 && o.records[last].stream == stream:
		o.records[last].text = append(o.records[last].text, kept...)
		o.bytes += len(kept)
	case len(o.records) < scopeRecords:
		o.records = append(o.records, piece{stream, bytes.Clone(kept)})
		o.bytes += len(kept)
	default:
		kept = nil
	}
	o.truncated += int64(len(text) - len(kept))
}

// outputs are the records, in the order in which they came.
func (o *cellOutput) outputs() (records []OutputRecord) {
	for _, p := range o.records {
		records = append(records, OutputRecord{Stream: streams[p.stream], Text: string(p.text)})
	}
	return records
}

// end closes what is open; the name of the full-output file, if there is one.
func (o *cellOutput) end() string {
	for stream := range streams {
		o.write(stream, nil, true)
	}
	if o.file == nil {
		return ""
	}
	o.file.Close()
	o.file = nil
	return o.path()
}
