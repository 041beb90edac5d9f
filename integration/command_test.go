package integration

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// binary builds the command once and returns its path. CELLBLOCK_BIN names a
// built one, for a user who has no Go.
func binary(t testing.TB) string {
	t.Helper()
	path, err := builtBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// buildDir holds the binary; TestMain removes it.
var buildDir string

var builtBinary = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("CELLBLOCK_BIN"); bin != "" {
		return filepath.Abs(bin)
	}
	dir, err := os.MkdirTemp("", "cellblock-test-bin-")
	if err != nil {
		return "", err
	}
	buildDir = dir
	bin := filepath.Join(dir, "cellblock")
	if out, err := exec.Command("go", "build", "-tags", "seccomp", "-o", bin, "../cmd/cellblock").CombinedOutput(); err != nil {
		return "", errors.New("build cmd/cellblock: " + err.Error() + "\n" + string(out))
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	if err := mountApart(); err != nil {
		panic(err)
	}
	// The records of the sessions under test are not the user's.
	state, err := os.MkdirTemp("", "cellblock-test-state-")
	if err == nil {
		err = os.Setenv("XDG_STATE_HOME", state) //nolint:forbidigo // before any test, for all of them
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(state)
	if buildDir != "" {
		os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// invocation is a run of the command that is being put together.
type invocation struct {
	t       testing.TB
	cwd     string
	environ []string
}

func command(t testing.TB) *invocation { return &invocation{t: t, environ: os.Environ()} }

func (c *invocation) dir(path string) *invocation { c.cwd = path; return c }
func (c *invocation) env(vars ...string) *invocation {
	c.environ = append([]string{}, vars...)
	return c
}

// outcome is what a run of the command left.
type outcome struct {
	stdout, stderr string
	code, pid      int
}

// run starts the command, waits for it and returns what it left.
func (c *invocation) run(args ...string) outcome {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(c.t), args...)
	cmd.Dir, cmd.Env = c.cwd, c.environ
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatalf("cellblock %v: %v", args, err)
	}
	if ctx.Err() != nil {
		c.t.Fatalf("cellblock %v hung\nstdout: %.2000s\nstderr: %.2000s", args, stdout.String(), stderr.String())
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), cmd.ProcessState.Pid()}
}

// line is one line of the outcome's stdout.
func (o outcome) line(t testing.TB, n int) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	if n >= len(lines) || lines[n] == "" {
		t.Fatalf("stdout has no line %d (exit code %d)\nstdout: %.2000s\nstderr: %.2000s", n, o.code, o.stdout, o.stderr)
	}
	return lines[n]
}

// launcher is a running command.
type launcher struct {
	t      testing.TB
	cmd    *exec.Cmd
	exited chan struct{}
}

// startLauncher runs cells, split at "# %%", with the built command and returns
// while it runs.
func startLauncher(t testing.TB, dir, cells string) *launcher {
	t.Helper()
	cmd := exec.Command(binary(t), "run", "--mode", "enforce", "--session", dir, "--python", pythonBin(), "--cells", "-c", cells)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l := &launcher{t, cmd, make(chan struct{})}
	go func() { cmd.Wait(); close(l.exited) }()
	t.Cleanup(l.kill)
	return l
}

// kill sends SIGKILL to the launcher and to nothing else.
func (l *launcher) kill() {
	l.cmd.Process.Signal(syscall.SIGKILL)
	<-l.exited
}
