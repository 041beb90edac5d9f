// Command cellblock-serve is the server of "cellblock serve", which checks what its
// operator has asked for, hands it over as one JSON document on standard input and
// becomes this program. It is a program of its own since what a server is made of costs
// a process milliseconds before main, which one that runs a single cell is not to pay.
//
// SIGTERM and SIGINT end it when what runs has ended, or at the latest after the time
// that the document states; a second one ends it at once. Its log is JSON lines on
// standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/kernel/front/http/server"
	"cellblock/kernel/front/mcp"
)

// exitUsage is the code for what cannot be used: a port, a path, a file.
const exitUsage = 2

// maxConfig bounds the document, of which a policy and its modules are the most.
const maxConfig = 8 << 20

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "cellblock: serve:", err)
		os.Exit(exitUsage)
	}
}

func serve() error {
	var config api.Config
	if err := api.Decode(io.LimitReader(os.Stdin, maxConfig), &config); err != nil {
		return fmt.Errorf("configuration on standard input: %w; start this program with 'cellblock serve'", err)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	ctx, now, stop := ends(log)
	defer stop()
	s, err := server.New(config, server.Hooks{
		Log: log,
		MCP: func(living context.Context, call func(context.Context, kernel.Call) kernel.Result, description string) http.Handler {
			return mcp.Handler(living, call, config.Version, description)
		},
		Ready: func(addresses []string) {
			log.Info("ready", "addresses", addresses, "pid", os.Getpid(), "mode", string(config.Session.Mode))
			notify(log, "READY=1")
		},
	})
	if err != nil {
		return err
	}
	err = s.Serve(ctx, now)
	return err
}

// ends are the ends that signals ask for: the first signal ends ctx, the second now.
func ends(log *slog.Logger) (ctx, now context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	now, cancelNow := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	// A terminal or a log that is gone ends no sessions.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	go func() {
		for range signals {
			if ctx.Err() != nil {
				cancelNow()
				continue
			}
			notify(log, "STOPPING=1")
			cancel()
		}
	}()
	return ctx, now, func() { signal.Stop(signals); cancel(); cancelNow() }
}

// notify tells the service manager, where there is one: sd_notify(3).
func notify(log *slog.Logger, state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		log.Warn("notify", "error", err.Error())
	}
}
