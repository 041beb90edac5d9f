package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// HeadSuffix is what the head's name has more than the log's.
const HeadSuffix = ".head"

// Head is what the file beside a log says of it.
type Head struct {
	// Count is the number of records, Hash the last one's; Genesis for none.
	Count int64  `json:"count"`
	Hash  string `json:"hash"`
	// Closed is set once the writer has ended as it should: nothing may follow.
	Closed bool `json:"closed"`

	serial int64
}

// slotSize is a sector: Linux writes one whole, or not at all.
const (
	slotSize = 512
	headSize = 2 * slotSize
	headMark = "cellblock-audit-head 1"
)

// slot is a head as it stands in the file.
func (h Head) slot() []byte {
	b := append(make([]byte, 0, slotSize), headMark+" "...)
	b = append(strconv.AppendInt(b, h.serial, 10), ' ')
	b = append(strconv.AppendInt(b, h.Count, 10), ' ')
	b = append(b, h.Hash...)
	if h.Closed {
		b = append(b, " closed"...)
	} else {
		b = append(b, " open"...)
	}
	sum := sha256.Sum256(b)
	b = hex.AppendEncode(append(b, ' '), sum[:8])
	for len(b) < slotSize-1 {
		b = append(b, ' ')
	}
	return append(b, '\n')
}

// parseSlot accepts exactly what slot makes.
func parseSlot(b []byte) (Head, bool) {
	words := strings.Fields(string(b))
	if len(words) != 7 {
		return Head{}, false
	}
	serial, err1 := strconv.ParseInt(words[2], 10, 64)
	count, err2 := strconv.ParseInt(words[3], 10, 64)
	h := Head{Count: count, Hash: words[4], Closed: words[5] == "closed", serial: serial}
	if err1 != nil || err2 != nil || len(h.Hash) != len(Genesis) || string(h.slot()) != string(b) {
		return Head{}, false
	}
	return h, true
}

// Errors about a head.
var (
	errNoHead     = errors.New("the file " + HeadSuffix + " beside it is missing: whether records were cut off cannot be told")
	errHeadBroken = errors.New("no slot of its head is whole: whether records were cut off cannot be told")
)

// parseHead reads both slots. whole is false when one of them is damaged, or
// does not fit the other.
func parseHead(b []byte) (h Head, whole bool, err error) {
	if len(b) != headSize {
		return Head{}, false, errHeadBroken
	}
	first, ok1 := parseSlot(b[:slotSize])
	second, ok2 := parseSlot(b[slotSize:])
	switch {
	case !ok1 && !ok2:
		return Head{}, false, errHeadBroken
	case !ok1:
		return second, false, nil
	case !ok2:
		return first, false, nil
	case first.serial > second.serial:
		return first, first.serial-second.serial == 1, nil
	}
	return second, second.serial-first.serial == 1, nil
}

// readHead reads the head beside a log.
func readHead(path string) (h Head, whole bool, err error) {
	f, err := os.OpenFile(path+HeadSuffix, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Head{}, false, errNoHead
	}
	if err != nil {
		return Head{}, false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, headSize+1))
	if err != nil {
		return Head{}, false, err
	}
	return parseHead(b)
}

// headFile is the head of a log that is being written.
type headFile struct {
	file *os.File
	Head
}

// createHead makes the head of a new log, with both slots.
func createHead(path string) (*headFile, error) {
	f, err := os.OpenFile(path+HeadSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	h := &headFile{file: f, Head: Head{Hash: Genesis, serial: 1}}
	older := Head{Hash: Genesis}
	if _, err := f.WriteAt(append(older.slot(), h.slot()...), 0); err != nil {
		f.Close()
		return nil, err
	}
	return h, nil
}

// set replaces the older slot.
func (h *headFile) set(next Head) error {
	next.serial = h.serial + 1
	if _, err := h.file.WriteAt(next.slot(), next.serial%2*slotSize); err != nil {
		return err
	}
	h.Head = next
	return nil
}
