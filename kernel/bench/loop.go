package bench

import (
	"bufio"
	"context"
	_ "embed" // the two programs
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runner runs code in an interpreter that stays, and returns the text of its value.
type runner interface {
	run(ctx context.Context, code string) (string, error)
	pids() ([]int, error)
	end()
}

//go:embed loop.py
var loopSource string

// loop is the least that runs cells: an interpreter without a jail that reads lines of
// JSON. It is what a session is measured against.
type loop struct {
	cmd    *exec.Cmd
	conn   net.Conn
	lines  *bufio.Reader
	number int
	done   chan struct{}
	stdout *os.File
}

// startLoop starts the loop. What its code prints is read and dropped.
func startLoop(python string) (*loop, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "loop"), os.NewFile(uintptr(pair[1]), "loop")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		conn.Close()
		return nil, err
	}
	defer write.Close()
	l := &loop{cmd: exec.Command(python, "-I", "-c", loopSource), conn: conn, lines: bufio.NewReader(conn), done: make(chan struct{}), stdout: read}
	l.cmd.Stdout, l.cmd.ExtraFiles = write, []*os.File{theirs}
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := l.cmd.Start(); err != nil {
		conn.Close()
		read.Close()
		return nil, err
	}
	go func() {
		defer close(l.done)
		buffer := make([]byte, 64<<10)
		for {
			if _, err := read.Read(buffer); err != nil {
				return
			}
		}
	}()
	return l, nil
}

func (l *loop) run(ctx context.Context, code string) (string, error) {
	if at, ok := ctx.Deadline(); ok {
		_ = l.conn.SetDeadline(at)
	}
	l.number++
	request, err := json.Marshal(map[string]any{"id": l.number, "code": code})
	if err != nil {
		return "", err
	}
	if _, err := l.conn.Write(append(request, '\n')); err != nil {
		return "", err
	}
	line, err := l.lines.ReadBytes('\n')
	if err != nil {
		return "", err
	}
	var reply struct {
		ID           int
		Value, Error string
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return "", err
	}
	if reply.Error != "" {
		return "", errors.New(reply.Error)
	}
	return reply.Value, nil
}

func (l *loop) pids() ([]int, error) { return []int{l.cmd.Process.Pid}, nil }

func (l *loop) end() {
	l.conn.Close()
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait() // killed: nothing to tell
	<-l.done
	l.stdout.Close()
}

//go:embed jupyter.py
var jupyterSource string

// jupyter is ipykernel behind jupyter_client, which is measured by a client of its own.
type jupyter struct {
	cmd   *exec.Cmd
	in    *os.File
	lines *bufio.Reader
}

// startJupyter starts a kernel of the distribution's Python, whose package it is.
func startJupyter() (*jupyter, error) {
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-I", "-c", "import ipykernel, jupyter_client").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("python3-ipykernel and python3-jupyter-client are not installed (%s)", lastLine(out))
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	j := &jupyter{cmd: exec.Command(python, "-I", "-c", jupyterSource), in: write}
	j.cmd.Stdin = read
	// Warnings of Debian's versions about each other are nobody's business here.
	out, err := j.cmd.StdoutPipe()
	if err == nil {
		err = j.cmd.Start()
	}
	if err != nil {
		write.Close()
		return nil, err
	}
	j.lines = bufio.NewReader(out)
	if line, err := j.lines.ReadString('\n'); err != nil || line != "ready\n" {
		j.end()
		return nil, fmt.Errorf("the kernel did not start: %w", err)
	}
	return j, nil
}

// once runs a cell and returns the microseconds that it took.
func (j *jupyter) once(code string) (float64, error) {
	if _, err := j.in.WriteString(code + "\n"); err != nil {
		return 0, err
	}
	line, err := j.lines.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(line), 64)
}

func (j *jupyter) end() {
	j.in.Close() // it ends its kernel
	kill := time.AfterFunc(10*time.Second, func() { _ = j.cmd.Process.Kill() })
	defer kill.Stop()
	_ = j.cmd.Wait() // what it measured has been read
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
