package observe

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mmap reads a mapping of a file whose code is to run.
func (l *look) mmap() []Op {
	fd := l.arg(4)
	link := "/proc/" + strconv.Itoa(l.tid) + "/fd/" + strconv.Itoa(fd)
	name, err := readLink(link)
	var stat unix.Stat_t
	switch {
	case err == unix.ENAMETOOLONG:
		return unknown(Load)
	case err != nil || unix.Stat(link, &stat) != nil || stat.Mode&unix.S_IFMT == unix.S_IFDIR || !readable(l.tid, fd):
		return nil
	}
	return l.load(name, stat.Dev, stat.Ino)
}

// readable says whether a descriptor is open for reading: without that nothing is mapped.
func readable(tid, fd int) bool {
	info, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(info, []byte("flags:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	flags, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 8, 64)
	return err == nil && flags&unix.O_PATH == 0 && flags&unix.O_ACCMODE != unix.O_WRONLY
}

// load is an operation on a file that Linux has a name for. One that has been removed, and
// is not merely so called,
// is told of by the name that it had, since its mount still says what it may be used
// for; what never had one, such as a memfd, lies on no mount of the jail.
func (l *look) load(name string, dev, ino uint64) []Op {
	if !strings.HasPrefix(name, "/") {
		return nil
	}
	if short, ok := strings.CutSuffix(name, removed); ok && !l.tree.holds(name, &unix.Stat_t{Dev: dev, Ino: ino}) {
		dir, err := l.tree.open(short[:strings.LastIndexByte(short, '/')+1], true)
		if err != nil {
			return nil
		}
		var stat unix.Stat_t
		err = unix.Fstat(dir, &stat)
		unix.Close(dir)
		if err != nil || stat.Dev != dev {
			return nil
		}
		name = short
	}
	return []Op{{Kind: Load, Path: name}}
}

// maxMappings is how many mappings of files one call is looked at for; Linux itself
// lets a process have 65,530 mappings by default.
const maxMappings = 1024

// mprotect reads a call that makes what is mapped executable: of each file that was
// not so before. Memory of no file has no name and no rule.
func (l *look) mprotect() []Op {
	file, err := os.Open("/proc/" + strconv.Itoa(l.tid) + "/maps")
	if err != nil {
		return nil // it has gone
	}
	defer file.Close()
	begin, end := l.args[0], l.args[0]+l.args[1]
	var ops []Op
	for range maxMappings {
		m, err := nextMapping(file, begin)
		switch {
		case err == unix.ENAMETOOLONG:
			return append(ops, unknown(Load)...)
		case err != nil || m.begin >= end:
			return ops
		}
		if !m.executable {
			ops = append(ops, l.load(m.name, m.dev, m.ino)...)
		}
		begin = m.end
	}
	return ops
}

// mapping is a part of a process's memory that shows a file.
type mapping struct {
	begin, end uint64
	executable bool
	dev, ino   uint64
	name       string // as Linux has it
}

// readMapping is nextMapping by the text that each Linux has (proc(5)).
func readMapping(maps *os.File, at uint64) (mapping, error) {
	if _, err := maps.Seek(0, 0); err != nil {
		return mapping{}, err
	}
	lines := bufio.NewScanner(maps)
	lines.Buffer(nil, 4*maxPath+256)
	for lines.Scan() {
		m, ok := parseMapping(lines.Text())
		if ok && m.end > at {
			return m, nil
		}
	}
	if lines.Err() != nil {
		return mapping{}, unix.ENAMETOOLONG
	}
	return mapping{}, unix.ENOENT
}

// parseMapping reads a line of /proc/<pid>/maps; false for memory of no file.
func parseMapping(line string) (m mapping, ok bool) {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) < 6 {
		return m, false
	}
	begin, end, _ := strings.Cut(fields[0], "-")
	major, minor, _ := strings.Cut(fields[3], ":")
	var numbers [5]uint64
	for i, text := range []string{begin, end, major, minor, fields[4]} {
		base := 16
		if i == 4 {
			base = 10
		}
		n, err := strconv.ParseUint(text, base, 64)
		if err != nil {
			return m, false
		}
		numbers[i] = n
	}
	name := strings.ReplaceAll(strings.TrimLeft(fields[5], " "), `\012`, "\n")
	m = mapping{numbers[0], numbers[1], strings.Contains(fields[1], "x"), unix.Mkdev(uint32(numbers[2]), uint32(numbers[3])), numbers[4], name}
	return m, strings.HasPrefix(name, "/") && len(fields[1]) == 4
}
