package shadow

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Moment is a time by a clock that nobody can set: CLOCK_BOOTTIME of one boot of the
// machine (clock_gettime(2)). File systems date changes by the wall clock.
type Moment struct {
	Boot string        `json:"boot"` // /proc/sys/kernel/random/boot_id, random(4)
	Up   time.Duration `json:"up"`
}

var bootID = sync.OnceValues(func() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
})

func moment() (m Moment, err error) {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return m, os.NewSyscallError("clock_gettime", err)
	}
	m.Up = time.Duration(up.Nano())
	m.Boot, err = bootID()
	return m, err
}

// old is the time before which a date says that the host has changed nothing since the
// layer was born: that of its birth, unless the wall clock has been set back since; by how
// much is known within one boot. The clocks may drift apart by a thousandth, twice what
// adjtimex(2) lets them. One that was set back and then forth as far is not noticed, nor
// one that was set back while the machine was off and has come by the birth again.
func (l *Layer) old() (before time.Time, setBack bool) {
	lived := time.Now().Round(0).Sub(l.Born)
	now, err := moment()
	if err != nil || l.Since == nil || now.Boot != l.Since.Boot {
		if lived < 0 {
			return time.Time{}, true
		}
		return l.Born, false
	}
	passed := now.Up - l.Since.Up
	if lost := passed - lived; lost > 100*time.Millisecond+passed/1000 {
		return l.Born.Add(-lost), true
	}
	return l.Born, false
}
