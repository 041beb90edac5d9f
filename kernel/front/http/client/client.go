// Package client speaks to "cellblock serve": what a kernel.Session does here, it has
// done there.
//
//	c, err := client.New("/run/cellblock/serve.sock", "")
//	if err != nil { … }
//	s, err := c.Create(ctx, api.Create{Directory: "/srv/a"})
//	if err != nil { … }
//	defer s.Close()
//	r := s.Call(ctx, kernel.Call{Code: "1 + 1"})
//
// What a cell asks is answered by [Session.Input] and [Session.Approve], as by the
// kernel.Options of a session here.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cellblock/kernel/front/http/api"
)

// short is how long a request may take that runs no cell.
const short = 30 * time.Second

// maxAnswer bounds an answer, and a piece of a stream, in bytes.
const maxAnswer = 256 << 20

// Client reaches one server. Its methods may be called from several goroutines.
type Client struct {
	address string // for messages
	base    string
	token   string
	http    *http.Client
}

// New returns a client of the server at an address: the path of a Unix socket, which has
// a / in it, or http://HOST:PORT of loopback with a token. Nothing is connected yet.
func New(address, token string) (*Client, error) {
	c := &Client{address: address, token: token}
	transport := &http.Transport{Proxy: nil, DisableCompression: true, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}
	switch {
	case strings.HasPrefix(address, "http://"):
		c.base = strings.TrimSuffix(address, "/")
		host, _, err := net.SplitHostPort(strings.TrimPrefix(c.base, "http://"))
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return nil, fmt.Errorf("server %q: is no address and port of loopback, such as http://127.0.0.1:8765: the token would go through a network as it is", address)
		}
		if token == "" {
			return nil, fmt.Errorf("server %s: asks for a token on its port", address)
		}
	case strings.Contains(address, "/"):
		if err := api.CheckSocket(address); err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
		c.base = "http://cellblock"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", address)
		}
	default:
		return nil, fmt.Errorf("server %q: is neither the path of a socket nor http://HOST:PORT", address)
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// Close closes connections that are not used. Sessions stay.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Create opens a session. A refusal is an *api.Problem.
func (c *Client) Create(ctx context.Context, ask api.Create) (*Session, error) {
	s := &Session{client: c}
	return s, c.ask(ctx, http.MethodPost, "/v1/sessions", ask, &s.Session)
}

// Sessions lists the caller's own.
func (c *Client) Sessions(ctx context.Context) ([]api.Session, error) {
	var list api.Sessions
	return list.Sessions, c.ask(ctx, http.MethodGet, "/v1/sessions", nil, &list)
}

// ask makes a request that takes no longer than short, and decodes the answer into v
// unless that is nil.
func (c *Client) ask(ctx context.Context, method, path string, body, v any) error {
	ctx, cancel := context.WithTimeout(ctx, short)
	defer cancel()
	answer, err := c.send(ctx, method, path, body, "application/json")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if v == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(v); err != nil {
		return fmt.Errorf("server %s: its answer: %w", c.address, err)
	}
	return nil
}

// send makes a request; an answer that is none of 2xx is an error.
func (c *Client) send(ctx context.Context, method, path string, body any, accept string) (*http.Response, error) {
	var text io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, text)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreached(ctx, err)
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	var failure api.Failure
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&failure); err != nil || failure.Error.Message == "" {
		return nil, fmt.Errorf("server %s: answers %s, and is none of ours", c.address, answer.Status)
	}
	return nil, &failure.Error
}

// unreached says why there was no answer, and what to do.
func (c *Client) unreached(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("server %s: %w", c.address, context.Cause(ctx))
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("server %s: permission denied: user %d may not connect; its operator lists a user with --allow-uid", c.address, os.Geteuid())
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("server %s: there is no such socket: start 'cellblock serve', or name another", c.address)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("server %s: nobody serves there (any more): start 'cellblock serve'", c.address)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("server %s: %w", c.address, err)
}
