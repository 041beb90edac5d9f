package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Entry is one line of a log.
type Entry struct {
	// Line counts from 1. In a log that is whole it is the record's Seq.
	Line   int64
	Record Record
	// Raw is the line as it came, without its line feed. It is valid until the
	// next step of the iteration.
	Raw []byte
}

// Errors that Read gives beside an entry. The iteration goes on after the first
// two and ends after the third.
var (
	ErrLineTooLong = fmt.Errorf("a line of more than %d bytes", MaxLine)
	ErrNoRecord    = errors.New("not a record")
	ErrTorn        = errors.New("the last line has no end")
)

// Read goes through a log line by line. Bytes of any origin may be read: no more
// than MaxLine of them are held. An error belongs to the entry beside it, whose
// Line is right; any other error than the three above is the reader's and the
// last.
func Read(r io.Reader) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		lines := bufio.NewReaderSize(r, 64<<10)
		var buffer []byte
		for n := int64(1); ; n++ {
			raw, err := line(lines, buffer[:0])
			buffer = raw
			switch {
			case errors.Is(err, io.EOF) && len(raw) == 0:
				return
			case errors.Is(err, io.EOF):
				yield(Entry{Line: n, Raw: raw}, ErrTorn)
				return
			case errors.Is(err, ErrLineTooLong):
				if !yield(Entry{Line: n, Raw: raw}, err) {
					return
				}
				continue
			case err != nil:
				yield(Entry{Line: n}, err)
				return
			}
			record, err := decodeRecord(raw)
			if err != nil {
				err = fmt.Errorf("%w: %w", ErrNoRecord, err)
			}
			if !yield(Entry{Line: n, Record: record, Raw: raw}, err) {
				return
			}
		}
	}
}

// line appends one line to buffer, without its line feed. Of one that is too
// long the rest is passed over.
func line(r *bufio.Reader, buffer []byte) ([]byte, error) {
	long := false
	for {
		part, err := r.ReadSlice('\n')
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		if room := MaxLine - len(buffer); len(part) > room {
			part, long = part[:room], true
		}
		buffer = append(buffer, part...)
		switch {
		case ended && long:
			return buffer, ErrLineTooLong
		case ended:
			return buffer, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return buffer, err
		}
	}
}
