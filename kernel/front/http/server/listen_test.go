package server

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cellblock/kernel/front/http/api"
)

// privateDir is a directory whose path is short enough for a socket.
func privateDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/var/tmp", "sock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestSocketsOfOthersAreLeftAlone: what a server may remove is the socket of one that is
// gone, and nothing else.
func TestSocketsOfOthersAreLeftAlone(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(t *testing.T, path string)
		says string // empty: it may be taken
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"a socket that nobody serves", func(t *testing.T, path string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
		}, ""},
		{"a socket that is served", func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, "another program answers"},
		{"a file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "left alone"},
		{"a link", func(t *testing.T, path string) {
			if err := os.Symlink("/etc/hosts", path); err != nil {
				t.Fatal(err)
			}
		}, "left alone"},
		{"a lock that is a link", func(t *testing.T, path string) {
			if err := os.Symlink("/nowhere", path+".lock"); err != nil {
				t.Fatal(err)
			}
		}, "symbolic link"},
		{"a directory that others may write", func(t *testing.T, path string) {
			if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
		}, "directory of its own"},
	} {
		path := filepath.Join(privateDir(t), "sock")
		c.put(t, path)
		before, _ := os.Lstat(path)
		l, lock, err := listenUnix(path, false)
		if c.says == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: mode %v, %v", c.name, info.Mode(), err)
			}
			if _, _, err := listenUnix(path, false); err == nil || !strings.Contains(err.Error(), "serves it already") {
				t.Errorf("%s: a second server: %v", c.name, err)
			}
			(&door{newCounted(l, 1), lock, path}).close()
			if _, err := os.Lstat(path); !os.IsNotExist(err) {
				t.Errorf("%s: the socket stays: %v", c.name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v lacks %q", c.name, err, c.says)
		}
		if after, _ := os.Lstat(path); (before == nil) != (after == nil) || before != nil && !os.SameFile(before, after) {
			t.Errorf("%s: was changed", c.name)
		}
	}
}

// TestOnlyLoopbackIsListenedOn: names are not looked up.
func TestOnlyLoopbackIsListenedOn(t *testing.T) {
	for address, fine := range map[string]bool{
		"127.0.0.1:0": true, "127.9.9.9:0": true, "[::1]:0": true, "[::ffff:127.0.0.1]:0": true,
		"0.0.0.0:0": false, ":0": false, "[::]:0": false, "localhost:0": false, "10.0.0.1:0": false, "169.254.1.1:0": false, "127.0.0.1": false, "": false,
	} {
		if _, err := loopback(address); (err == nil) != fine {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestServersThatCannotBe: each is refused before anything listens, with what to do.
func TestServersThatCannotBe(t *testing.T) {
	dir := privateDir(t)
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tokenFile := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*api.Config)
		says   string
	}{
		{"no root", func(c *api.Config) { c.Roots = nil }, "--root"},
		{"a root that is missing", func(c *api.Config) { c.Roots[0].Path = "/nowhere" }, "/nowhere"},
		{"no bound", func(c *api.Config) { c.Bounds.Cells = 0 }, "cells"},
		{"nothing to listen on", func(c *api.Config) { c.Socket = "" }, "nothing to listen on"},
		{"a port without tokens", func(c *api.Config) { c.Listen, c.TokenFile = "127.0.0.1:0", "" }, "--token-file"},
		{"a port in use", func(c *api.Config) { c.Listen = taken.Addr().String() }, taken.Addr().String() + ": the port is in use"},
		{"all addresses", func(c *api.Config) { c.Listen = "0.0.0.0:0" }, "not on loopback"},
		{"a socket among the sessions", func(c *api.Config) { c.Socket = filepath.Join(root, "sock") }, "directory of its own"},
		{"a socket above the sessions", func(c *api.Config) { c.Socket = filepath.Join(dir, "sock") }, "directory of its own"},
		{"no such profile", func(c *api.Config) { c.Session.Profile = "nope" }, "nope"},
		{"a limit that no interpreter starts with", func(c *api.Config) { c.Session.Limits.MemoryBytes = 1 }, "memory"},
		{"no such interpreter", func(c *api.Config) { c.Session.Python = "/no/such/python" }, "/no/such/python"},
		{"a path that is too long for a socket", func(c *api.Config) { c.Socket = dir + strings.Repeat("/long", 20) }, "at most 107 bytes"},
		{"activation without sockets", func(c *api.Config) { c.Activated = true }, "LISTEN_FDS"},
	} {
		config := api.Config{Socket: filepath.Join(dir, "s", "sock"), TokenFile: tokenFile, Roots: []api.Root{{Path: root}}, Bounds: api.DefaultBounds(),
			Session: api.Options{Python: "/usr/bin/python3", Profile: "default"}}
		c.change(&config)
		_, err := New(config, Hooks{})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v lacks %q", c.name, err, c.says)
		}
		if _, err := os.Lstat(filepath.Join(dir, "s", "sock")); !os.IsNotExist(err) {
			t.Errorf("%s: a socket is left: %v", c.name, err)
		}
	}
}
