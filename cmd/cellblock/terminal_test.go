package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a person before a terminal in which the command runs.
type terminal struct {
	t     testing.TB
	keys  *os.File // the person's side: what is typed goes in, the screen comes out
	cmd   *exec.Cmd
	mu    sync.Mutex
	shown strings.Builder
	seen  int // bytes that await has gone past
	ended chan struct{}
}

const (
	ctrlC    = "\x03"
	ctrlD    = "\x04"
	enter    = "\r"
	upKey    = "\x1b[A"
	prompt   = ">>> "
	more     = "... "
	patience = time.Minute // no expectation of speed: longer is a hang
)

// openPTY makes a pair of pseudo terminals (pts(4)).
func openPTY(t testing.TB) (keys, tty *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return keys, tty
}

// at starts the command in a terminal of its own.
func at(t testing.TB, home, dir string, args ...string) *terminal {
	t.Helper()
	keys, tty := openPTY(t)
	cmd := exec.Command("cellblock", args...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + home, "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TERM=xterm", "TMPDIR=" + os.TempDir()}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	p := &terminal{t: t, keys: keys, cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for buffer := make([]byte, 4096); ; {
			n, err := keys.Read(buffer)
			p.mu.Lock()
			p.shown.Write(buffer[:n])
			p.mu.Unlock()
			if err != nil {
				return // EIO: the last process has let go of its side
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-p.ended
		keys.Close()
	})
	return p
}

// press types keys as they are.
func (p *terminal) press(keys string) {
	p.t.Helper()
	if _, err := p.keys.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// line types one line.
func (p *terminal) line(text string) { p.t.Helper(); p.press(text + enter) }

// await waits until the screen shows text after what was awaited before, and
// returns what it showed up to there.
func (p *terminal) await(text string) string {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		rest := p.shown.String()[p.seen:]
		at := strings.Index(rest, text)
		if at >= 0 {
			p.seen += at + len(text)
		}
		p.mu.Unlock()
		if at >= 0 {
			return rest[:at]
		}
		if time.Now().After(end) {
			p.t.Fatalf("the screen never showed %q; after what was awaited it shows:\n%q", text, rest)
		}
	}
}

// exit waits for the end of the command and returns its code.
func (p *terminal) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the command does not end; the screen:\n%q", p.shown.String()[p.seen:])
	}
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// desk is a home and a session directory.
func desk(t *testing.T) (home, dir string) {
	t.Helper()
	root := workdirs(t)
	home, dir = filepath.Join(root, "home"), filepath.Join(root, "project")
	for _, d := range []string{home, dir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return home, dir
}

// TestReplTerminal: cells are typed, blocks end at an empty line, the end of
// input ends the session whatever a cell raised.
func TestReplTerminal(t *testing.T) {
	home, dir := desk(t)
	p := at(t, home, dir, "repl")
	p.await("Ctrl-D ends, Ctrl-C interrupts a cell, :reset clears the namespace")
	p.await(prompt)
	p.line("6 * 7")
	p.await("42\r\n")
	p.await(prompt)
	p.line("def f(n):")
	p.await(more)
	p.line("    return n + 1")
	p.await(more)
	p.line("")
	p.await(prompt)
	p.line("f(")
	p.await(more)
	p.line("41) * 2")
	p.await("84\r\n")
	p.await(prompt)
	p.line("1 / 0")
	p.await("ZeroDivisionError: division by zero\r\n")
	p.await(prompt)
	// What a cell prints moves no cursor and sets no title.
	p.line(`print("\x1b]0;owned\x07")`)
	p.await("^[]0;owned^G\r\n")
	p.await(prompt)
	p.press(ctrlD)
	if code := p.exit(); code != exitOK {
		t.Errorf("exit code %d after Ctrl-D, want %d", code, exitOK)
	}
}

// TestReplInterrupt: Ctrl-C ends the running cell, and what earlier cells have
// set stays; at the prompt it drops the line, or the block.
func TestReplInterrupt(t *testing.T) {
	home, dir := desk(t)
	p := at(t, home, dir, "repl")
	p.await(prompt)
	p.line("kept = 'still here'")
	p.await(prompt)
	p.line("import time; print('run' + 'ning', flush=True); time.sleep(600)")
	p.await("running\r\n")
	p.press(ctrlC)
	p.await("KeyboardInterrupt")
	p.await(prompt)
	p.line("kept")
	p.await("'still here'\r\n")
	p.await(prompt)
	p.press("kept = 'half a li" + ctrlC)
	p.await(prompt)
	p.line("for x in range(3):")
	p.await(more)
	p.press(ctrlC)
	p.await(prompt)
	p.line("kept, 'x' in globals()")
	p.await("('still here', False)\r\n")
	p.await(prompt)
	// One that does not let itself be interrupted ends with its worker.
	p.line("while True:")
	p.await(more)
	p.line("    try: print('de' + 'af', flush=True); time.sleep(600)")
	p.await(more)
	p.line("    except KeyboardInterrupt: pass")
	p.await(more)
	p.line("")
	p.await("deaf\r\n")
	p.press(ctrlC)
	p.await("python kernel killed: aborted by the host")
	p.await(prompt)
	p.line("'kept' in globals()")
	p.await("False\r\n")
	p.await("lost")
	p.await(prompt)
	p.press(ctrlD)
	p.exit()
}

// TestReplAsks: input() reads a line from the terminal, getpass() does so
// without showing it, and Ctrl-C gets out of both.
func TestReplAsks(t *testing.T) {
	home, dir := desk(t)
	p := at(t, home, dir, "repl")
	p.await(prompt)
	p.line("name = input('na' + 'me? ')")
	p.await("name? ")
	p.line("Ada")
	p.await(prompt)
	p.line("name")
	p.await("'Ada'\r\n")
	p.await(prompt)
	p.line("import getpass; word = getpass.getpass('pass' + 'word? ')")
	p.await("password? ")
	p.line("hunter2")
	if shown := p.await(prompt); strings.Contains(shown, "hunter2") {
		t.Errorf("the screen shows the password: %q", shown)
	}
	p.line("len(word)")
	p.await("7\r\n")
	p.await(prompt)
	p.line("input('a' + 'gain? ')")
	p.await("again? ")
	p.press(ctrlC)
	p.await("KeyboardInterrupt")
	p.await(prompt)
	p.line("name")
	p.await("'Ada'\r\n")
	p.await(prompt)
	p.press(ctrlD)
	p.exit()
}

// TestReplHistory: lines come back with the up key, in the next repl too; the
// file is its owner's, and no cell sees it.
func TestReplHistory(t *testing.T) {
	home, dir := desk(t)
	p := at(t, home, dir, "repl")
	p.await(prompt)
	p.line("40 + 1")
	p.await("41\r\n")
	p.await(prompt)
	p.line("40 + 2")
	p.await("42\r\n")
	p.await(prompt)
	p.press(upKey + upKey + enter)
	p.await("41\r\n")
	p.await(prompt)
	p.press(ctrlD)
	p.exit()

	file := filepath.Join(home, ".local", "state", "cellblock", "history")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the history: %v, %v, want mode 0600", info, err)
	}
	p = at(t, home, dir, "repl")
	p.await(prompt)
	p.press(upKey + enter)
	p.await("41\r\n")
	p.await(prompt)
	p.line("try: print(open('" + file + "').read() or 'no' + 'thing')")
	p.await(more)
	p.line("except OSError: print('no' + 'thing')")
	p.await(more)
	p.line("")
	p.await("nothing\r\n")
	p.await(prompt)
	p.line(":quit")
	if code := p.exit(); code != exitOK {
		t.Errorf("exit code %d after :quit", code)
	}
}
