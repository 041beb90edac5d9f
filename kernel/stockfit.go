package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"cellblock/jail"
	"cellblock/policy"
)

// mayWarm says why no warm parent may be started for a kind; nil when one may. A parent runs
// the interpreter outside of any jail, and its workers see it through the host's own mount
// (/proc/self/exe), where nothing but ownership refuses a change. So it must be the
// system's: link, file and library root's, changeable by nobody else, and by no session.
func (st *Stock) mayWarm(s *Session) error {
	python, err := interpreter(s.opts.PythonBin, s.places())
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 && !jail.Probe().Privileged {
		return errors.New("workers would have the ids of who owns the interpreter")
	}
	if os.Geteuid() == 0 && !s.policy.WriteDefault.Enforced {
		return errors.New("in this mode a session may change root's files, and so the interpreter")
	}
	for _, path := range []string{python, real} {
		if !policy.Within("/usr", path) || policy.Within(st.options.Sessions, path) {
			return fmt.Errorf("%s is not the system's own: its owner's sessions could change it", path)
		}
		if _, err := os.Lstat(filepath.Join(filepath.Dir(filepath.Dir(path)), "pyvenv.cfg")); err == nil {
			return fmt.Errorf("%s is of a virtual environment", path)
		}
		if err := rootsAlone(path); err != nil {
			return err
		}
	}
	libraries, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(real)), "lib*", "python3*"))
	for _, path := range libraries {
		if err := rootsAlone(path); err != nil {
			return err
		}
	}
	for _, place := range s.places() { // not only what the interpreter itself lies beneath
		if policy.Overlap("/usr", place) {
			return fmt.Errorf("its policy lets sessions change %s", place)
		}
	}
	return nil
}

// rootsAlone refuses a path of which any part can be changed by others than root.
func rootsAlone(path string) error {
	for at := path; ; at = filepath.Dir(at) {
		var stat syscall.Stat_t
		if err := syscall.Lstat(at, &stat); err != nil {
			return err
		}
		link := stat.Mode&syscall.S_IFMT == syscall.S_IFLNK
		if stat.Uid != 0 || !link && stat.Mode&0o022 != 0 {
			return fmt.Errorf("%s can be changed by others than root", at)
		}
		if at == "/" || !strings.HasPrefix(at, "/") {
			return nil
		}
	}
}
