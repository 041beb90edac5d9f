package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// Finding is one thing that is not as it was written. Line names the record, by
// its place in the file.
type Finding struct {
	Line int64  `json:"line"`
	Text string `json:"text"`
}

// String names the record and says what is wrong with it.
func (f Finding) String() string { return fmt.Sprintf("record %d: %s", f.Line, f.Text) }

// maxFindings bounds what one log can have us say.
const maxFindings = 100

// Verification is what became of a look at a whole log.
type Verification struct {
	// Records is how many lines are records. Head is the last one's hash: who
	// notes it in another place can later prove that nothing before it changed.
	Records int64  `json:"records"`
	Head    string `json:"head"`
	// Closed is set when the writer has ended as it should, Live when it is at
	// work now.
	Closed bool `json:"closed"`
	Live   bool `json:"live"`
	// Findings are in the order of the file. Empty: all that was acknowledged is
	// there as it was written.
	Findings []Finding `json:"findings"`
	// Notes are what a kill of the writer explains, and host calls of which nobody knows
	// whether they were done.
	Notes []string `json:"notes,omitempty"`
}

// Clean reports whether nothing was found.
func (v Verification) Clean() bool { return len(v.Findings) == 0 }

// Expect is a hash that was noted earlier, as Verification.Head: the log must
// have a record with it. Empty for none.
type Expect string

// Verify reads a log and its head and compares every record with the hash that
// follows it. The error is that of a file that cannot be read.
func Verify(path string, expect ...Expect) (Verification, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Verification{}, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return Verification{}, fmt.Errorf("audit log %s: not a regular file", path)
	}
	// The head before the log: a writer at work makes the log longer, never the
	// head that was read.
	live := locked(f)
	head, whole, headErr := readHead(path)
	for try := 0; try < 10 && live && !whole; try++ {
		time.Sleep(time.Millisecond) // between the two halves of a write
		head, whole, headErr = readHead(path)
	}
	c := checker{head: head, headErr: headErr, whole: whole, found: Verification{Head: Genesis, Closed: head.Closed, Live: live}}
	for _, e := range expect {
		if e != "" {
			c.expected = append(c.expected, string(e))
		}
	}
	return c.run(f)
}

// locked reports whether a writer holds the log.
func locked(f *os.File) bool {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return errors.Is(err, syscall.EWOULDBLOCK)
	}
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	return false
}

// checker goes along a chain. A record vouches for the one before it, so that a
// link that does not fit is one of two records' fault; which one, the next link
// tells, and the head after the last.
type checker struct {
	head     Head
	headErr  error
	whole    bool
	expected []string
	found    Verification

	last     int64  // seq of the record before, or what it should be
	other    int64  // what it may be as well, after a gap
	hash     string // of the line before
	bad      bool   // the line before is a finding: its hash explains nothing
	pending  int64  // line whose link to the one before does not fit; 0 for none
	headHash string // of the record that the head names
	bytes    int64  // of all lines with an end
	torn     int64  // bytes of a last line without one, as far as they were read; -1 for none
	calls    unknown
}

func (c *checker) add(line int64, format string, args ...any) {
	if len(c.found.Findings) < maxFindings {
		c.found.Findings = append(c.found.Findings, Finding{line, fmt.Sprintf(format, args...)})
	}
}

const changed = "is not what was written"

func (c *checker) run(r io.Reader) (Verification, error) {
	c.hash, c.headHash = Genesis, Genesis
	c.torn = -1
	var lines int64
	for e, err := range Read(r) {
		switch {
		case errors.Is(err, ErrTorn):
			c.torn = int64(len(e.Raw))
		case err == nil:
			lines = e.Line
			c.bytes += int64(len(e.Raw)) + 1
			c.record(e)
		case errors.Is(err, ErrNoRecord), errors.Is(err, ErrLineTooLong):
			lines = e.Line
			c.resolve(false)
			c.add(e.Line, "%s: %v", changed, err)
			c.hash, c.bad = hashOf(e.Raw), true
			c.last, c.other = c.last+1, 0
		default:
			return c.found, err
		}
	}
	c.finish(lines)
	return c.found, nil
}

// record checks one line that is a record.
func (c *checker) record(e Entry) {
	r, fits := e.Record, e.Record.Prev == c.hash
	c.found.Records++
	c.calls.add(e.Line, r)
	if c.pending != 0 {
		c.bad = c.bad || !fits
		c.resolve(fits)
	}
	due := c.last + 1
	inOrder := r.Seq == due || c.other != 0 && r.Seq == c.other+1 || c.bad && r.Seq > due
	switch {
	case !inOrder && fits:
		c.add(e.Line, "%s: its number is %d where %d was due", changed, r.Seq, due)
	case !inOrder && r.Seq > due:
		c.add(e.Line, "is number %d where %d was due: records between are missing", r.Seq, due)
	case !inOrder:
		c.add(e.Line, "is number %d where %d was due: it was put here, or moved", r.Seq, due)
	case !fits && !c.bad:
		c.pending = e.Line
	}
	c.other = 0
	switch {
	case inOrder:
		c.last = r.Seq
	default:
		// Either its number was changed, or others are missing: the next one tells.
		c.last, c.other = due, r.Seq
	}
	c.bad = !inOrder
	c.hash = hashOf(e.Raw)
	c.found.Head = c.hash
	if r.Seq == c.head.Count {
		c.headHash = c.hash
	}
	for i, want := range c.expected {
		if want == c.hash {
			c.expected = append(c.expected[:i:i], c.expected[i+1:]...)
			break
		}
	}
}

// resolve says which of two records a broken link is the fault of: intact is
// whether something vouches for the later one.
func (c *checker) resolve(intact bool) {
	if c.pending == 0 {
		return
	}
	line := c.pending
	c.pending = 0
	if intact && line > 1 {
		line--
	}
	c.add(line, "%s", changed)
}

func (c *checker) finish(lines int64) {
	if c.other > c.last {
		c.last = c.other
	}
	last := c.last
	c.resolve(c.headErr == nil && c.head.Count == last && c.head.Hash == c.hash)
	switch {
	case c.headErr != nil:
		c.add(lines+1, "%v", c.headErr)
	case last < c.head.Count:
		c.add(lines+1, "is missing, and all after it up to %d: the end was cut off", c.head.Count)
	case c.headHash != c.head.Hash && c.Clean():
		c.add(c.head.Count, "%s: the head names another one", changed)
	case c.head.Closed && (last > c.head.Count || c.torn >= 0):
		c.add(min(c.head.Count, lines)+1, "was added after the log had been closed")
	default:
		if n := last - c.head.Count; n > 0 {
			c.found.Notes = append(c.found.Notes, fmt.Sprintf("%d at the end: written, not yet acknowledged", n))
		}
		if c.torn >= 0 {
			c.found.Notes = append(c.found.Notes, fmt.Sprintf("a last line of %d bytes without an end, never acknowledged", c.torn))
		}
	}
	if c.headErr == nil && !c.whole {
		c.add(lines+1, "the head beside the log is damaged: one of its two slots is not what was written")
	}
	for _, want := range c.expected {
		c.add(lines+1, "no record has the expected hash %s", want)
	}
	if c.found.Live || !c.found.Closed {
		why := "the writer has not closed it: it was killed"
		if c.found.Live {
			why = "a writer is at work on it"
		}
		c.found.Notes = append(c.found.Notes, why)
	}
	c.found.Notes = append(c.found.Notes, c.calls.notes(c.found.Live)...)
}

// Clean reports whether nothing was found yet.
func (c *checker) Clean() bool { return c.found.Clean() }

func hashOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}
