package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"cellblock/kernel/front/http/api"
	"cellblock/policy"
)

const serveLong = `Serve many sessions to many callers over HTTP, on a Unix socket and, with --listen,
on a port of loopback. /v1/openapi.json says what can be asked.

Who connects to the socket is known by its user: root, the server's own, and those
of --allow-uid. On the port a token is asked for, of which --token-file has one a
line ("TOKEN" or "NAME TOKEN"). Each caller sees its own sessions only.

Sessions may be at or beneath a --root; mode, policy and limits are those of the
flags here, and a request can make them tighter only. With --stock, jails with an
interpreter wait for sessions to come, and one that fits a session is ready at once;
--stock-way says whether each is executed or forked of a warm one. /v1/metrics tells how many were given out, and how many sessions found none.

SIGTERM lets nothing new in and gives running cells --drain to end in; a second
one ends at once. Logs are JSON lines on standard error. Exit codes: 0 ended as
asked, 2 what could not be used, such as a port that is in use.`

// serveFlags are those of the command.
type serveFlags struct {
	session   sessionFlags
	socket    string
	listen    string
	tokenFile string
	uids      []int
	roots     []string
	activated bool
	bounds    api.Bounds
	stock     api.Stock
	memory    string // of the stock
}

// ofOneSession are the flags of a session that a server has no use for, and why.
var ofOneSession = map[string]string{
	"session":          "sessions are made by requests; --root says where they may be",
	"keep-definitions": "a server's sessions keep nothing when they end",
}

func newServe(c *console) *cobra.Command {
	flags := serveFlags{bounds: api.DefaultBounds(), stock: api.DefaultStock()}
	cmd := &cobra.Command{
		Use:   "serve --root DIR",
		Short: "Serve sessions over HTTP on a Unix socket or loopback",
		Long:  serveLong,
		Args:  atMost(0),
	}
	set := cmd.Flags()
	set.StringArrayVar(&flags.roots, "root", nil, "directory at or beneath which sessions may be; uid:N=DIR or token:NAME=DIR for one caller (repeatable)")
	set.StringVar(&flags.socket, "socket", "", "path of the Unix socket, or none (default cellblock/serve.sock in $XDG_RUNTIME_DIR or, as root, /run)")
	set.IntSliceVar(&flags.uids, "allow-uid", nil, "users that may connect to the socket, beside root and the server's own")
	set.StringVar(&flags.listen, "listen", "", "address and port of loopback, such as 127.0.0.1:8765")
	set.StringVar(&flags.tokenFile, "token-file", "", "file (mode 0600) of the tokens that callers of the port have")
	set.BoolVar(&flags.activated, "activated", false, "take the sockets that systemd has opened, in place of --socket and --listen")
	set.IntVar(&flags.bounds.Sessions, "max-sessions", flags.bounds.Sessions, "sessions in all")
	set.IntVar(&flags.bounds.CallerSessions, "max-caller-sessions", flags.bounds.CallerSessions, "sessions of one caller")
	set.IntVar(&flags.bounds.Cells, "max-cells", flags.bounds.Cells, "calls that run or wait, in all")
	set.IntVar(&flags.bounds.CallerCells, "max-caller-cells", flags.bounds.CallerCells, "calls of one caller that run or wait")
	set.IntVar(&flags.bounds.Queue, "max-queue", flags.bounds.Queue, "calls that wait for one session")
	set.IntVar(&flags.bounds.Connections, "max-connections", flags.bounds.Connections, "connections of each listener")
	set.DurationVar(&flags.bounds.Idle, "idle", flags.bounds.Idle, "how long a session may be unused before it is ended")
	set.DurationVar(&flags.bounds.Drain, "drain", flags.bounds.Drain, "how long running cells may go on when the server ends")
	set.IntVar(&flags.stock.Workers, "stock", 0, "keep up to so many workers ready for each kind of session, which then starts at once; 0 for none")
	set.StringVar(&flags.memory, "stock-memory", "512MiB", "memory that all workers that are kept ready may have")
	set.StringVar(&flags.stock.Way, "stock-way", flags.stock.Way, "how they are made: exec, each with an address layout of its own, or fork, of a warm one, which spares its start and shares its memory and layout, where the profile allows it")
	flags.session.addCells(set)
	set.StringVar(&flags.session.auditSync, "audit-sync", "bounds", "when records are forced to the disk: bounds (start and end), each or none")
	set.StringVar(&flags.session.audit, "audit", "", "directory of the sessions' records, or none (default $XDG_STATE_HOME/cellblock/audit)")
	for name := range ofOneSession {
		cobra.CheckErr(set.MarkHidden(name))
	}
	flags.session.complete(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := flags.config(cmd)
		if err != nil {
			return err
		}
		return become(config)
	}
	cmd.AddCommand(newServeUnit(c))
	return cmd
}

// config is what the flags ask for.
func (f *serveFlags) config(cmd *cobra.Command) (api.Config, error) {
	fail := func(err error) (api.Config, error) { return api.Config{}, usage(cmd, err) }
	for name, why := range ofOneSession {
		if cmd.Flags().Changed(name) {
			return fail(fmt.Errorf("flag --%s: %s", name, why))
		}
	}
	if len(f.roots) == 0 {
		return fail(errors.New("flag --root: missing; name a directory beneath which sessions may be"))
	}
	if err := f.bounds.Check(); err != nil {
		return fail(err)
	}
	var err error
	if f.stock.Memory, err = policy.ParseLimit("memory", f.memory); err != nil {
		return fail(fmt.Errorf("flag --stock-memory: %w", err))
	}
	if err := f.stock.Check(); err != nil {
		return fail(fmt.Errorf("flags --stock, --stock-memory and --stock-way: %w", err))
	}
	audit := f.session.audit
	f.session.audit = "none" // of the flags' own session, which is none
	options, err := f.session.options(cmd)
	if err != nil {
		return api.Config{}, err
	}
	switch audit {
	case "none":
		audit = ""
	case "":
		audit = auditDir()
	}
	config := api.Config{Version: versionText(), UIDs: f.uids, Listen: f.listen, TokenFile: f.tokenFile, Activated: f.activated, Bounds: f.bounds, Stock: f.stock}
	paths := []*string{&audit, &config.TokenFile}
	for _, text := range f.roots {
		root, err := api.ParseRoot(text)
		if err != nil {
			return fail(fmt.Errorf("flag --root: %w", err))
		}
		config.Roots = append(config.Roots, root)
	}
	for i := range config.Roots {
		paths = append(paths, &config.Roots[i].Path)
	}
	if !f.activated && f.socket != "none" {
		if config.Socket = f.socket; config.Socket == "" {
			if config.Socket, err = defaultSocket(); err != nil {
				return fail(err)
			}
		}
		paths = append(paths, &config.Socket)
	}
	if f.activated && (f.socket != "" || f.listen != "") {
		return fail(errors.New("flag --activated: systemd has opened the sockets; leave --socket and --listen out"))
	}
	if config.Socket == "" && config.Listen == "" && !f.activated {
		return fail(errors.New("flag --socket: none, and no --listen; nobody could connect"))
	}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return fail(err)
		}
	}
	config.Session = api.FromKernel(options, audit)
	return config, nil
}

// defaultSocket is where a server listens, and a client looks, that was told no path.
func defaultSocket() (string, error) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "cellblock", "serve.sock"), nil
	}
	if os.Geteuid() == 0 {
		return "/run/cellblock/serve.sock", nil
	}
	if dir := stateDir(); dir != "" {
		return filepath.Join(dir, "serve", "serve.sock"), nil
	}
	return "", errors.New("flag --socket: no place for one is known (no $XDG_RUNTIME_DIR and no home); name a path")
}

// become starts the serving program in place of this one, with the configuration as its
// standard input: process id and the service manager's sockets stay.
func become(config api.Config) error {
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("cellblock-serve", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "configuration")
	defer f.Close()
	if _, err := f.ReadFrom(bytes.NewReader(text)); err != nil {
		return err
	}
	if _, err := f.Seek(0, 0); err != nil {
		return err
	}
	if err := unix.Dup3(fd, 0, 0); err != nil {
		return fmt.Errorf("dup3: %w", err)
	}
	program := besideThis("cellblock-serve")
	err = unix.Exec(program, []string{"cellblock-serve"}, os.Environ())
	if errors.Is(err, unix.ENOENT) {
		err = fmt.Errorf("%w; install it beside cellblock, as 'make build' does", err)
	}
	return &exitError{exitUsage, fmt.Errorf("start %s: %w", program, err)}
}

// besideThis is a program in this one's directory; the name alone when nobody knows
// where that is.
func besideThis(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	return filepath.Join(filepath.Dir(self), name)
}
